import contextlib
import queue
import threading
import time

import torch


class Progress:
    def __init__(self, items, clock=time.monotonic):
        self.items, self.clock, self.began, self.drawn, self.rate = items, clock, clock(), 0.0, 0.0

    def __iter__(self):
        for number, item in enumerate(self.items, 1):
            yield item
            now = self.clock()
            self.rate = 0.7 * self.rate + 0.3 * number / max(now - self.began, 1e-9)
            if now - self.drawn > 0.1:
                self.drawn = now
                print(f"{number}: {self.rate:.1f}/s, {time.process_time():.2f} s of the processor")


def heartbeat(beats, stop):
    while not stop.wait(0.01):
        beats.put(time.perf_counter_ns())


beats, stop = queue.Queue(), threading.Event()
threading.Thread(target=heartbeat, args=(beats, stop), daemon=True).start()
torch.manual_seed(63)
model = torch.nn.Linear(6, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
began, deadline = time.time(), time.perf_counter() + 600
for _ in Progress(range(8)):
    if time.perf_counter() > deadline or time.time() - began > 3600:
        break
    with contextlib.suppress(queue.Empty):
        beats.get(timeout=0.05)
    optimizer.zero_grad()
    model(torch.randn(16, 6)).square().mean().backward()
    optimizer.step()
stop.set()
