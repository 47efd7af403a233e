import logging
import os
import socket

import torch
from torch import nn

name = f"train-{socket.gethostname()}-{os.getpid()}.log"
logging.basicConfig(
    filename=name, level=logging.INFO, format="%(asctime)s %(process)d %(threadName)s %(message)s"
)
logger = logging.getLogger("train")
torch.manual_seed(8)
model = nn.Sequential(nn.Linear(5, 10), nn.ReLU(), nn.Linear(10, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(5):
    x = torch.randn(16, 5)
    loss = nn.functional.mse_loss(model(x), x.amax(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    logger.info("step %d, loss %.4f, model at %#x", step, loss.item(), id(model))
