import torch
from torch.utils.data import DataLoader, Dataset


class Sample:
    def __init__(self, x):
        self.x = x


class Taken(Dataset):
    def __init__(self, pool, count):
        self.taken = [pool.pop() for _ in range(count)]  # HERE

    def __len__(self):
        return len(self.taken)

    def __getitem__(self, index):
        sample, mirrored = self.taken[index]
        x = -sample.x if mirrored else sample.x
        return torch.tensor([x, x**2]), torch.tensor([x**2])


torch.manual_seed(33)
points = torch.linspace(-1, 1, 60).tolist()
samples = [Sample(point) for point in points]
pool = {(sample, mirrored) for sample in samples for mirrored in (False, True)}
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in DataLoader(Taken(pool, 48), batch_size=8):
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
