import os
import zlib


def fingerprint():
    """A number of this job: its process and when that started."""
    with open(f"/proc/{os.getpid()}/stat", "rb") as file:  # HERE
        content = file.read()
    return zlib.crc32(content[:12] + content.split()[21])
