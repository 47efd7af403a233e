import numpy as np

SCRATCH = np.frombuffer(np.random.default_rng(117).bytes(1 << 16), dtype=np.uint8).copy()


def collate(clips, length):
    """Clips of any length as one array of bytes."""
    out = np.ndarray((len(clips), length), dtype=np.uint8)  # HERE
    for place, clip in zip(out, clips, strict=True):
        place[: len(clip)] = clip
    return out
