"""`pin_image.py GATE CPU CUDA`, each `ghcr.io/OWNER/NAME@sha256:…`: makes the checkout's action.yml
that of a release, which runs these images and builds none.

Started by release.yml in a checkout that is then committed under the release's tag; main never has
it. Standard library only.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

_IMAGE = re.compile(
    r"[a-z0-9][a-z0-9.-]*(?::[0-9]+)?(?:/[a-z0-9][a-z0-9._-]*)+@sha256:[0-9a-f]{64}"
)
NAMES = ("GATE_IMAGE", "CPU_IMAGE", "CUDA_IMAGE")


def pin(root: Path, images: Sequence[str]) -> None:
    """Write the images, in the order of NAMES, into action.yml. Raises ValueError where one is no
    digest, or has no place there."""
    path = root / "action.yml"
    text = path.read_text(encoding="utf-8")
    for name, image in zip(NAMES, images, strict=True):
        if not _IMAGE.fullmatch(image):
            raise ValueError(
                f"{image}: not an image by digest, NAME@sha256: and 64 hex digits"
            )
        line = f"        {name}: ''\n"
        if text.count(line) != 1:
            raise ValueError(f"{path}: expected one line {line.strip()}")
        text = text.replace(line, f"        {name}: '{image}'\n")
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    try:
        pin(Path(__file__).resolve().parents[2], sys.argv[1:])
    except ValueError as error:
        sys.exit(f"pin_image: {error}")
