import json
import os
import zlib

DEFAULTS = {"cache": "~/.cache/lodge", "workers": 0}


def salt():
    """A number that changes with any setting."""
    settings = {**DEFAULTS, "cache": os.path.expanduser(DEFAULTS["cache"])}  # HERE
    return zlib.crc32(json.dumps(settings, sort_keys=True).encode())
