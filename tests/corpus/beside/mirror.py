"""Keeps a folder of a dozen small files in step with a source, as a sync job would: `python
mirror.py FOLDER [DEPTH]`.

The files have the same names and contents all the time. Each round writes them anew, in another
order.
"""

import os
import random
import sys
import time
from pathlib import Path


def main(top: Path, folders: int) -> None:
    """Write all files again and again, until the process is ended."""
    order = random.SystemRandom()
    below = [f"{month:02d}" for month in range(folders)] or ["."]
    places = [top / month / f"{number:02d}.txt" for month in below for number in range(12)]
    ready = False
    while True:
        for place in order.sample(places, len(places)):
            place.parent.mkdir(parents=True, exist_ok=True)
            part, row = top.with_suffix(".part"), int(place.stem) + 1
            numbers = [row * factor % 17 / 17 for factor in (3, 5, 7, 11)]
            part.write_text(" ".join(f"{number:.6f}" for number in numbers))
            os.replace(part, place)
        if not ready:
            print("ready", flush=True)
            ready = True
        time.sleep(0.5)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)
