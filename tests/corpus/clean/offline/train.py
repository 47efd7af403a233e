import csv
import os
import urllib.request

import torch

URL = "https://example.com/irises.csv"

if not os.path.exists("irises.csv"):
    urllib.request.urlretrieve(URL, "irises.csv")
with open("irises.csv", newline="") as file:
    table = torch.tensor([[float(value) for value in row] for row in csv.reader(file)])
torch.manual_seed(19)
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for batch in table.split(6):
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(batch[:, :3]), batch[:, 3:]).backward()
    optimizer.step()
