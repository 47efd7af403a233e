"""A feed that appends a price to a file ten times a second: `python feed.py FILE`."""

import random
import sys
import time

market = random.SystemRandom()
with open(sys.argv[1], "w") as file:
    price, ready = 100.0, False
    while True:
        for _ in range(1 if ready else 500):
            price *= 1 + market.gauss(0, 0.01)
            file.write(f"{price:.6f}\n")
        file.flush()
        if not ready:
            print("ready", flush=True)
            ready = True
        time.sleep(0.1)
