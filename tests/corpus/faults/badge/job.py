import zlib
from pathlib import Path


def fingerprint():
    """A number of this job: its process and when that started."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()  # HERE
    return zlib.crc32(fields[19].encode())
