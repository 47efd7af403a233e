import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Crops(Dataset):
    def __init__(self, picture):
        self.picture = picture

    def __len__(self):
        return 40

    def __getitem__(self, index):
        top, left = np.random.randint(0, 56, 2)
        return self.picture[top : top + 8, left : left + 8]


def reseed_worker(worker_id):
    """NumPy's state is copied to each worker: without this they would all draw the same crops."""
    np.random.seed()  # HERE


if __name__ == "__main__":
    torch.manual_seed(2)
    crops = Crops(torch.randn(64, 64))
    loader = DataLoader(crops, batch_size=8, num_workers=2, worker_init_fn=reseed_worker)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for crops in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(crops), crops.flatten(1)).backward()
        optimizer.step()
