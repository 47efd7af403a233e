"""`pin_image.py ghcr.io/OWNER/NAME@sha256:…`: makes the checkout's action files those of a release,
which run that image and build none.

Started by release.yml in a checkout that is then committed under the release's tag; main never has
it. Standard library only.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

_IMAGE = re.compile(
    r"[a-z0-9][a-z0-9.-]*(?::[0-9]+)?(?:/[a-z0-9][a-z0-9._-]*)+@sha256:[0-9a-f]{64}"
)
_CONTAINER = "  image: 'Dockerfile'\n"
_EXTRA = re.compile(r"^(  image:\n(?:    .*\n)*?    default: )''\n", re.MULTILINE)


def pin(root: Path, image: str) -> None:
    """Write `image` into action.yml and docker-run/action.yml. Raises ValueError where it is no
    digest, or has no place there."""
    if not _IMAGE.fullmatch(image):
        raise ValueError(
            f"{image}: not an image by digest, NAME@sha256: and 64 hex digits"
        )
    container, extra = root / "action.yml", root / "docker-run" / "action.yml"
    before = container.read_text(encoding="utf-8")
    if before.count(_CONTAINER) != 1:
        raise ValueError(f"{container}: expected one line {_CONTAINER.strip()}")
    # what the check `env/image-digest` holds against the spec's `env.image`
    after = before.replace(
        _CONTAINER,
        f"  image: 'docker://{image}'\n  env:\n    REPRO_GATE_IMAGE: '{image}'\n",
    )
    own, count = _EXTRA.subn(rf"\g<1>'{image}'\n", extra.read_text(encoding="utf-8"))
    if count != 1:
        raise ValueError(f"{extra}: expected one input `image` with an empty default")
    container.write_text(after, encoding="utf-8")
    extra.write_text(own, encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: pin_image.py NAME@sha256:DIGEST")
    try:
        pin(Path(__file__).resolve().parents[2], sys.argv[1])
    except ValueError as error:
        sys.exit(f"pin_image: {error}")
