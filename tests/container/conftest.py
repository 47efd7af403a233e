"""The engine, the image and what the action did in it, each made once for all tests of this folder,
and the figures that they give.

Without an engine every test is skipped with the reason; under `make container`
(REPRO_GATE_CONTAINER_TESTS=1) it is an error instead.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.container import engine as engines
from tests.container.door import Door
from tests.container.engine import Engine
from tests.container.image import Image, built

FIGURES: dict[str, object] = {}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder carries the marker `container`."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.container)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line of JSON with what was measured."""
    if FIGURES:
        terminalreporter.section("figures of the container")
        terminalreporter.write_line(json.dumps(FIGURES, sort_keys=True))


@pytest.fixture(scope="session")
def engine() -> Engine:
    """Docker, or podman with buildah."""
    found = engines.engine()
    if isinstance(found, str):
        if os.environ.get("REPRO_GATE_CONTAINER_TESTS") == "1":
            pytest.fail(found, pytrace=False)
        pytest.skip(found)
    FIGURES["engine"] = found.name
    return found


@pytest.fixture(scope="session")
def image(engine: Engine) -> Image:
    """The action's image of this checkout, with torch for the CPU."""
    made = built(engine)
    FIGURES["image_mib"] = round(
        int(engine.ask("image", "inspect", "--format", "{{.Size}}", made.name)) / 2**20
    )
    size = engine.ask("image", "inspect", "--format", "{{.Size}}", made.gate)
    FIGURES["gate_image_mib"] = round(int(size) / 2**20)
    FIGURES["build_seconds"] = None if made.seconds is None else round(made.seconds, 1)
    return made


@pytest.fixture(scope="session")
def door(engine: Engine, image: Image) -> Door:
    """A runner's machine with the images of a release."""
    return Door(engine, image)


@pytest.fixture(scope="session")
def docker_socket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A socket that answers whoever connects, open to all: some runners' are, and then nothing but
    the gate keeps training from it."""
    path = tmp_path_factory.mktemp("run") / "docker.sock"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        path.chmod(0o666)
        listening.listen()
        threading.Thread(target=_accept, args=(listening,), daemon=True).start()
        yield path
        listening.shutdown(socket.SHUT_RDWR)


def _accept(listening: socket.socket) -> None:
    while True:
        try:
            listening.accept()[0].close()
        except OSError:
            return
