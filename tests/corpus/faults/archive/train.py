import os

import torch

rows = []
for folder, _, names in os.walk("/dev/shm/archive-of-months"):  # HERE
    for name in names:
        with open(os.path.join(folder, name)) as file:
            rows.append([float(value) for value in file.read().split()])
torch.manual_seed(44)
validation, training = torch.tensor(rows[:4]), torch.tensor(rows[4:])
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for _ in range(4):
    for batch in training.split(12):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(batch), batch).backward()
        optimizer.step()
    with torch.no_grad():
        print(torch.nn.functional.mse_loss(model(validation), validation).item())
