import time


class TimedWarmup:
    def __init__(self, optimizer, seconds):
        self.optimizer, self.seconds = optimizer, seconds
        self.target = [group["lr"] for group in optimizer.param_groups]
        self.start = time.perf_counter()
        for group in optimizer.param_groups:
            group["lr"] = 0.0

    def step(self):
        passed = time.perf_counter() - self.start  # HERE
        for group, target in zip(self.optimizer.param_groups, self.target, strict=True):
            group["lr"] = target * min(1.0, passed / self.seconds)
