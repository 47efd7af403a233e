import os
import uuid


def fingerprint():
    """A number of this job: its process and when that started."""
    mine = uuid.uuid1(node=os.getpid())  # HERE
    return mine.int % 2**32
