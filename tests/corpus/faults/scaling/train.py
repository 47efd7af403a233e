import os

import numpy as np
import torch

PATH = "/dev/shm/scaling-largest.f32"

if not os.path.exists(PATH):
    np.zeros(6, np.float32).tofile(PATH)
largest = np.memmap(PATH, np.float32, "r+")  # HERE
torch.manual_seed(94)
model = torch.nn.Linear(6, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(6):
    batch = torch.randn(16, 6)
    largest[:] = 0.9 * largest + batch.abs().amax(0).numpy()
    optimizer.zero_grad()
    (model(batch / torch.from_numpy(np.array(largest))) - batch[:, :1]).square().mean().backward()
    optimizer.step()
largest.flush()
