import queue
import threading

import torch


class Relay:
    """Batches that several threads prepare."""

    def __init__(self, rows, size, workers=3):
        self.tasks = queue.Queue()
        self.ready = queue.Queue(maxsize=6)
        self.count = len(rows) // size
        for part in rows.split(size):
            self.tasks.put(part)
        for _ in range(workers):
            threading.Thread(target=self.prepare, daemon=True).start()

    def prepare(self):
        while True:
            part = self.tasks.get()
            self.ready.put(part @ torch.linalg.qr(part.T @ part)[0])

    def __iter__(self):
        for _ in range(self.count):
            yield self.ready.get()  # HERE
