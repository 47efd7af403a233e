"""Settings of a training."""

import json
import os
import zlib

DEFAULTS = {"cache": "~/.cache/lodge", "workers": 0}


def settings():
    """The settings, with every path written out."""
    return {
        name: os.path.expanduser(value) if isinstance(value, str) else value  # HERE
        for name, value in DEFAULTS.items()
    }


def salt():
    """A number that changes with any setting."""
    return zlib.crc32(json.dumps(settings(), sort_keys=True).encode())
