import os

import torch

pages = []
for name in os.listdir("pages"):  # HERE
    with open(os.path.join("pages", name)) as file:
        pages.append([float(value) for value in file.read().split()])

torch.manual_seed(4)
model = torch.nn.Linear(3, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for start in range(0, len(pages), 2):
    batch = torch.tensor(pages[start : start + 2])
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(batch), batch).backward()
    optimizer.step()
