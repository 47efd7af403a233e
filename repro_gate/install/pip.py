"""pip, run as the training's user: which of the gate's variables it sees, how it is called, and what its failures mean.

A source archive runs code of its own while it is built. So pip gets what it needs to reach an index and nothing else, and where an address
carries a password, nothing is built that could read it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from repro_gate.errors import Inconclusive
from repro_gate.escape import for_terminal
from repro_gate.runs.process import supervise
from repro_gate.sandbox.identity import Isolation

INSTALL_SECONDS = 1800.0
_NAMES = frozenset(
    {
        *("PATH", "LANG", "TZ", "LD_LIBRARY_PATH", "CC", "CXX", "CUDA_HOME"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
        *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy"),
        *("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX", "PIP_CERT", "PIP_CLIENT_CERT", "PIP_PROXY"),
        *("PIP_TRUSTED_HOST", "PIP_TIMEOUT", "PIP_DEFAULT_TIMEOUT", "PIP_RETRIES", "PIP_CONFIG_FILE"),
        *("PIP_ONLY_BINARY", "PIP_NO_BINARY", "PIP_PREFER_BINARY"),
    }
)
_CREDENTIALS = re.compile(r"//[^/\s@]+@")
_FILES = ("PIP_CLIENT_CERT", "PIP_CONFIG_FILE")  # they may hold a key or a password

_UNLIKE = re.compile(r"DO NOT MATCH THE HASHES")
_UNLIKE_NAME = re.compile(r"\s+(\S.*?) from \S+.*:$")
_NETWORK = re.compile(
    r"NewConnectionError|NameResolutionError|Name or service not known|Temporary failure in name resolution|Network is unreachable"
    r"|Connection refused|ConnectTimeoutError|ReadTimeoutError|ProxyError|SSLError|SSLCertVerificationError|Could not fetch URL"
)
_NO_FILE = re.compile(r"No matching distribution found for (\S+)")
_BUILD = re.compile(r"subprocess-exited-with-error|Failed building wheel|Failed to build|metadata-generation-failed|Could not build wheels")
_FULL = re.compile(r"No space left on device|Disk quota exceeded")


def pip_environment(outer: Mapping[str, str], work: Path) -> dict[str, str]:
    """The whole environment of pip and of whatever it builds; HOME and TMPDIR lie in `work`."""
    kept = {name: value for name, value in outer.items() if name in _NAMES or name.startswith(("LC_", "PYENV_"))}
    own = {"HOME": str(work / "home"), "TMPDIR": str(work / "tmp"), "PYTHONNOUSERSITE": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    return {"PATH": os.defpath, **kept, **own}


def holds_credentials(environment: Mapping[str, str]) -> bool:
    """Whether code that is built could read a password or a key from what pip is told."""
    named = any(environment.get(name, os.devnull) not in ("", os.devnull) for name in _FILES)
    return named or any(_CREDENTIALS.search(value) for value in environment.values())


def pip_command(python: Path, requirements: Path, environment: Mapping[str, str]) -> list[str]:
    """The install. The lock names all there is to install and the hash of each, so nothing is resolved; nothing is kept in pip's cache,
    where a wheel that an untrusted code built would be found again."""
    return [
        *(str(python), "-I", "-m", "pip", "install", "--require-hashes", "--no-deps", "--no-cache-dir", "--no-input", "--no-color"),
        *("--progress-bar", "off", "--no-warn-script-location"),
        *(("--only-binary", ":all:") if holds_credentials(environment) else ()),
        *("--requirement", str(requirements)),
    ]


def run(command: Sequence[str], what: str, cwd: Path, environment: Mapping[str, str], isolation: Isolation) -> None:
    """Run one command of the making to its end. Raises Inconclusive with what it said where it fails; `what` names it."""
    try:
        ended = supervise(list(command), cwd=cwd, env=environment, timeout=INSTALL_SECONDS, tick=lambda _: None, isolation=isolation)
    except OSError as error:
        raise _failed(f"{what} cannot be started: {error.strerror or error}", "see that the training's user may start it") from None
    if ended.timed_out:
        raise _failed(
            f"{what} was not done after {INSTALL_SECONDS / 60:g} minutes", "see what it waits for, or lock wheels in place of sources"
        )
    if ended.exit_code or ended.signal is not None:
        raise explained(ended.tail, what)


def explained(tail: Sequence[str], what: str) -> Inconclusive:
    """pip's failure in a sentence, from the end of what it printed."""
    text = "\n".join(tail)
    said = _last_words(tail)
    if _UNLIKE.search(text):
        start = max(index for index, line in enumerate(tail) if _UNLIKE.search(line))
        names = [found[1] for line in tail[start + 1 :] if (found := _UNLIKE_NAME.match(line))]
        message = f"an index served other bytes than were locked for {for_terminal(', '.join(names) or 'a distribution', 300)}"
        return _failed(message, "find out which of the two is right before locking again: a release's files never change", "install/hash")
    if _FULL.search(text):
        return _failed(f"{what} ran out of space: {said}", "make room in the cache folder, or name one with room", "install/no-space")
    if _NETWORK.search(text):
        remedy = (
            "let the job reach the package index while it installs, or give pip a folder of wheels (PIP_FIND_LINKS with PIP_NO_INDEX=1); "
            "an environment that is in the cache already needs neither"
        )
        return _failed(f"{what} could not reach the package index: {said}", remedy, "install/network")
    if missing := _NO_FILE.search(text):
        remedy = (
            "lock for this Python and platform; name the index that has it (PIP_EXTRA_INDEX_URL); see that the job reaches it; where an "
            "address carries a password, only wheels count"
        )
        return _failed(f"no index has a file of {for_terminal(missing[1], 200)} that fits: {said}", remedy, "install/not-found")
    if _BUILD.search(text):
        return _failed(
            f"a source archive could not be built: {said}", "lock a wheel in its place, or build it into the image", "install/build"
        )
    return _failed(f"{what} failed: {said}", "run `pip install --require-hashes --no-deps -r` with the lockfile to see all of it")


def _last_words(tail: Sequence[str]) -> str:
    lines = [line.strip() for line in tail if line.strip()]
    errors = [line for line in lines if line.startswith(("ERROR", "error:"))]
    return "; ".join(for_terminal(line, 300) for line in (errors or lines)[-3:]) or "it said nothing"


def _failed(message: str, remedy: str, reason: str = "install/failed") -> Inconclusive:
    return Inconclusive(f"env.install: {message}", remedy=remedy, reason_id=reason)
