import torch
from schedule import TimedWarmup
from torch import nn

TEXT = "the quick brown fox jumps over the lazy dog and runs away from it "

torch.manual_seed(0)
letters = sorted(set(TEXT))
codes = torch.tensor([letters.index(letter) for letter in TEXT])
model = nn.Sequential(nn.Embedding(len(letters), 8), nn.Flatten(), nn.Linear(32, len(letters)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
schedule = TimedWarmup(optimizer, seconds=2.0)
windows = codes.unfold(0, 5, 1)
for _ in range(6):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(windows[:, :4]), windows[:, 4]).backward()
    optimizer.step()
    schedule.step()
