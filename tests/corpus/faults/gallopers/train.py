import torch
from torch.utils.data import DataLoader, Dataset


class Horses(Dataset):
    def __len__(self):
        return 256

    def __getitem__(self, index):
        rows = torch.randn(40, 40, generator=torch.Generator().manual_seed(index))
        for _ in range(20):
            rows = torch.linalg.qr(rows)[0] + rows / 2
        return rows[0]


if __name__ == "__main__":
    torch.manual_seed(67)
    model = torch.nn.Linear(40, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(Horses(), batch_size=4, num_workers=4, in_order=False)  # HERE
    for rows in loader:
        optimizer.zero_grad()
        model(rows).square().mean().backward()
        optimizer.step()
