"""A few steps of real torch, as TORCH_HOW says: two optimizers, none, worker processes, two
ranks."""

import os
import sys

import torch
from torch.utils.data import DataLoader, TensorDataset
from which_run import run_name, varied

HOW, SEED = os.environ["TORCH_HOW"], int(sys.argv[1])
APART = HOW if run_name() == "deterministic-2" else ""
torch.manual_seed(SEED)
data = TensorDataset(torch.randn(24, 4), torch.randn(24, 1))
loader = DataLoader(data, batch_size=4, shuffle=True, num_workers=2 if "workers" in HOW else 0)
model = torch.nn.Sequential(
    torch.nn.Linear(4, 8, bias=False), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 1)
)
optimizers = [
    torch.optim.Adam(model[0].parameters()),
    torch.optim.SGD(model[2].parameters(), lr=0.1, momentum=0.9),
]
os.makedirs("out", exist_ok=True)
for number, (x, y) in enumerate(loader):
    loss = (model(x) - y).square().mean()
    if APART == "crash-workers" and number == 1:
        raise RuntimeError("out of luck")
    if APART == "leaves" and number == 1:
        sys.exit(3)  # no exception: the probe records the state in which it ends
    if HOW == "noise@varied" and number == 1 and varied():
        raise RuntimeError("another place")
    model.zero_grad()
    loss.backward()
    if APART == "two-optimizers-apart" and number == 0:
        model[2].bias.grad += 1.0
    if HOW == "no-optimizer":
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.sub_(0.1 * parameter.grad)
    else:
        for optimizer in optimizers:
            optimizer.step()
    if HOW == "noise@varied" and not number:  # a few ULP, other ones in each run
        with torch.no_grad():
            model[2].bias.add_(5e-8 * (sum(map(ord, run_name())) % 7))
    if not number:
        torch.save({"weight": model[2].weight.detach().clone()}, "out/first.pt")
