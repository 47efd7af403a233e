"""The images that the tests stand on: a Debian base made from packages where none can be pulled, the
action's two for the CPU, and two of a lab's own that know nothing of the gate.

Called by `conftest`. Each is named by a hash over what goes into it, so an unchanged checkout finds
its image and builds nothing.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

from tests.container.engine import Engine, engine

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = ROOT / "Dockerfile"
CONTEXT: tuple[str, ...] = ("Dockerfile", ".dockerignore", "LICENSE", "README.md")
CONTEXT += (
    "pyproject.toml",
    "requirements",
    "docs/causes",
    "docs/checks",
    "docs/reasons.md",
    "repro_gate",
)
NAME, BASE = "localhost/repro-gate-test", "localhost/repro-gate-base"
# Images of a lab's own. What they train with comes out of ours, since no torch can be pulled here.
_SYSTEM = """
FROM {ours} AS ours
FROM {base}
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends python3 git
COPY --from=ours /opt/venv/lib/python3.11/site-packages /usr/local/lib/python3.11/dist-packages
RUN ln -s python3 /usr/bin/python
"""
_PREFIX = """
FROM {ours} AS ours
FROM {base}
COPY --from=ours /usr/lib/python3.11 /opt/conda/envs/train/lib/python3.11
COPY --from=ours /usr/bin/python3.11 /opt/conda/envs/train/bin/python3.11
COPY --from=ours /lib/x86_64-linux-gnu /lib/x86_64-linux-gnu
COPY --from=ours /opt/venv/lib/python3.11/site-packages /opt/conda/envs/train/local/lib/python3.11/dist-packages
RUN ln -s python3.11 /opt/conda/envs/train/bin/python && useradd --uid 1000 lab
ENV LD_PRELOAD=/not/there/libjemalloc.so
USER 1000
"""
THEIRS = {"system": _SYSTEM, "prefix": _PREFIX}
# given to the build as a release gives it, and looked for in the labels
REVISION = "0123456789abcdef0123456789abcdef01234567"
_CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"


@dataclass(frozen=True)
class Image:
    """Our images: `name` with torch, `gate` without. `seconds`: what building them took, None where
    they had been built before."""

    name: str
    base: str
    seconds: float | None

    @property
    def gate(self) -> str:
        """The gate alone: what comes into an image of somebody else's."""
        return f"{self.name}-gate"


def built(engine: Engine) -> Image:
    """The action's image of this checkout, with torch for the CPU. Raises CalledProcessError; what
    the build says goes to stderr."""
    base = default_base() if engine.name == "docker" else _debian(engine)
    name = f"{NAME}:{_digest([*_files(CONTEXT), *_files(['tests/container/image.py'])], base)}"
    if engine.has(f"{name}-gate"):
        return Image(name, base, None)
    arguments = {
        "TORCH": "cpu",
        "REVISION": REVISION,
        "VERSION": "test",
        "SOURCE": "https://github.com/repro-gate/repro-gate",
    }
    if engine.name == "podman":
        arguments |= {"BASE_IMAGE": base, "BASE_NAME": base}
    if not _reachable(_default("TORCH_INDEX")):
        arguments["TORCH_INDEX"] = ""
    options = [f"--build-arg={key}={value}" for key, value in arguments.items()]
    options += ["--file", str(DOCKERFILE)]
    started = time.monotonic()
    with _pip_of_this_machine(engine) as mounts:
        for target in (["--tag", name], ["--target", "gate", "--tag", f"{name}-gate"]):
            _run([*engine.build, *options, *target, *mounts, str(ROOT)])
    seconds = time.monotonic() - started
    _forget_others(engine, name)
    return Image(name, base, seconds)


def of_a_lab(engine: Engine, ours: Image, kind: str) -> str:
    """The name of an image that knows nothing of the gate: `system`, with Python and torch in /usr,
    or `prefix`, with both below /opt/conda/envs/train, off PATH, and a user of its own."""
    text = THEIRS[kind].format(ours=ours.name, base=ours.base)
    lock = [ROOT / "requirements/image-cpu.lock"]  # all that it takes of ours
    name = f"{NAME}-{kind}:{_digest(lock, THEIRS[kind], ours.base)}"
    if not engine.has(name):
        with TemporaryDirectory(prefix="repro-gate-lab-") as folder:
            Path(folder, "Dockerfile").write_text(text, encoding="utf-8")
            _run([*engine.build, "--tag", name, folder])
        _forget_others(engine, name)
    return name


def default_base() -> str:
    """The image that a release stands on, by digest."""
    return f"{_default('BASE_NAME')}@{_default('BASE_DIGEST')}"


def suite() -> str:
    """The Debian release of the Dockerfile's base: its tests must not stand on another."""
    found = re.search(r"/debian:([a-z]+)-", _default("BASE_NAME"))
    assert found is not None
    return found[1]


def _default(argument: str) -> str:
    """What the Dockerfile gives a build argument where nobody does."""
    found = re.search(
        rf"^ARG {argument}=(.*)$", DOCKERFILE.read_text(encoding="utf-8"), re.MULTILINE
    )
    assert found is not None, f"Dockerfile: no ARG {argument}"
    return found[1]


def _debian(engine: Engine) -> str:
    """A base of the release's Debian packages, made here."""
    name = f"{BASE}:{_digest(_files(['tests/container/image.py']), suite())}"
    if engine.has(name):
        return name
    with TemporaryDirectory(prefix="repro-gate-base-") as folder:
        root = f"{folder}/root"
        _run(["debootstrap", "--variant=minbase", suite(), root])
        left = "cache/apt/archives/*.deb", "lib/apt/lists/*", "log/*.log", "cache/apt/*.bin"
        without = [f"--exclude=./var/{item}" for item in left]
        packed = subprocess.Popen(
            ["tar", "-C", root, "--numeric-owner", "--one-file-system", *without, "-c", "."],
            stdout=subprocess.PIPE,
        )
        _run([*engine.client, "import", "-", name], stdin=packed.stdout)
        assert packed.stdout is not None
        packed.stdout.close()
        assert packed.wait(60) == 0
    return name


def _run(command: list[str], stdin: IO[bytes] | None = None) -> None:
    """Everything that it prints goes to stderr, where pytest keeps it for the failure."""
    done = subprocess.run(
        command,
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=3600,
        check=False,
    )
    print(done.stdout[-20_000:], file=sys.stderr)
    done.check_returncode()


def _files(names: Iterable[str]) -> list[Path]:
    found = []
    for name in names:
        found += [ROOT / name, *sorted((ROOT / name).rglob("*"))]
    return [
        path
        for path in found
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc"
    ]


def _digest(files: Iterable[Path], *more: str) -> str:
    total = hashlib.sha256("\0".join(more).encode())
    for path in files:
        content = path.read_bytes()
        mode = f"{path.stat().st_mode & 0o777:o}"
        total.update(f"\0{path.relative_to(ROOT)}\0{mode}\0{len(content)}\0".encode() + content)
    return total.hexdigest()[:16]


def _forget_others(engine: Engine, name: str) -> None:
    """Drop the images that earlier versions of this checkout left: each is more than a gigabyte."""
    kind = name.partition(":")[0]
    for other in engine.ask("images", "--format", "{{.Repository}}:{{.Tag}}", kind).split():
        if other.removesuffix("-gate") != name and other.startswith(f"{kind}:"):
            remove = [*engine.client, "rmi", other]
            subprocess.run(remove, capture_output=True, timeout=300, check=False)


def _reachable(url: str) -> bool:
    """Whether anything answers at that address: pip would try an index that is not there again and
    again, once for each package."""
    try:
        urllib.request.urlopen(url, timeout=10).close()
    except urllib.error.HTTPError:
        return True
    except (OSError, ValueError):
        return False
    return True


@contextlib.contextmanager
def _pip_of_this_machine(engine: Engine) -> Iterator[list[str]]:
    """Options that give pip in the build what pip has here: certificates, and folders and indexes
    on this disk. PyPI stays what it is.

    buildah alone can mount; a Docker daemon may not even be on this machine, and gets none.
    """
    if engine.name == "docker":
        yield []
        return
    settings: dict[str, str] = {}
    asked = [sys.executable, "-m", "pip", "config", "list"]
    said = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=True)
    for line in said.stdout.splitlines():
        key, _, value = line.partition("=")
        settings.setdefault(key.rpartition(".")[2], value.strip("'\""))
    places = ("find-links", "extra-index-url", "index-url")
    local = [_on_disk(item) for key in places for item in settings.get(key, "").split()]
    mounts = {os.path.realpath(path): path for path in local if path is not None}
    # An index lies beside the files that it names, so the folder above it comes too.
    mounts |= {
        os.path.dirname(real): os.path.dirname(path)
        for real, path in list(mounts.items())
        if os.path.basename(path) == "simple"
    }
    certificates = settings.get("cert") or (_CERTIFICATES if os.path.exists(_CERTIFICATES) else "")
    wanted = (*places, "default-timeout")
    kept = {key: value for key, value in settings.items() if key in wanted}
    with TemporaryDirectory(prefix="repro-gate-pip-") as folder:
        if certificates:
            mounts[os.path.realpath(certificates)] = "/etc/pip-certificates.crt"
            kept["cert"] = "/etc/pip-certificates.crt"
        written = Path(folder, "pip.conf")
        lines = "".join(f"{key} = {value}\n" for key, value in kept.items())
        written.write_text(f"[global]\n{lines}", encoding="utf-8")
        mounts[str(written)] = "/etc/pip.conf"
        yield [item for real, path in mounts.items() for item in ("--volume", f"{real}:{path}:ro")]


def _on_disk(place: str) -> str | None:
    """The folder that a `find-links` or an index names; None for one that is not on this disk."""
    if place.startswith("file://"):
        path = urllib.parse.unquote(urllib.parse.urlsplit(place).path)
    else:
        path = place
    return path.rstrip("/") if os.path.isabs(path) and os.path.exists(path) else None


if __name__ == "__main__":
    here = engine()
    if isinstance(here, str):
        sys.exit(here)
    print(built(here).name)
