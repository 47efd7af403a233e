import threading

import torch
from torch import nn


class Buffer(threading.Thread):
    def __init__(self, samples):
        super().__init__(daemon=True)
        self.samples = samples
        self.fresh = samples.clone()
        self.done = threading.Event()

    def run(self):
        row = 0
        while not self.done.is_set():
            self.fresh[row] = self.samples[row] + 0.1 * torch.randn(self.samples.shape[1])  # HERE
            row = (row + 1) % len(self.samples)


torch.manual_seed(59)
buffer = Buffer(torch.randn(32, 6))
model = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Dropout(0.1), nn.Linear(12, 6))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
buffer.start()
for _ in range(8):
    batch = buffer.fresh.clone()
    optimizer.zero_grad()
    nn.functional.mse_loss(model(batch), buffer.samples).backward()
    optimizer.step()
buffer.done.set()
buffer.join()
