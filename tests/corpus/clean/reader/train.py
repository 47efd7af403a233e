import queue
import threading

import torch

ready = queue.Queue(maxsize=2)


def read():
    generator = torch.Generator().manual_seed(26)
    for _ in range(6):
        ready.put(torch.randn(16, 5, generator=generator))
    ready.put(None)


torch.manual_seed(26)
model = torch.nn.Linear(5, 5)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
threading.Thread(target=read, daemon=True).start()
while (batch := ready.get()) is not None:
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(batch), batch).backward()
    optimizer.step()
