"""uv as `env.install` starts it: which of the gate's variables and pip's settings it is given, and
what its failures mean. A source archive runs code of its own while it is built, so nothing is built
where an address carries a password that it could read."""

from __future__ import annotations

import configparser
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from repro_gate.errors import Inconclusive
from repro_gate.escape import for_terminal
from repro_gate.runs.process import supervise
from repro_gate.sandbox.identity import Sandbox

INSTALL_SECONDS = 1800.0
_KEPT = frozenset(
    {
        *(
            "PATH",
            "LANG",
            "TZ",
            "LD_LIBRARY_PATH",
            "CC",
            "CXX",
            "CUDA_HOME",
            "SSL_CERT_FILE",
            "SSL_CERT_DIR",
        ),
        *(
            "HTTP_PROXY",
            "HTTPS_PROXY",
            "ALL_PROXY",
            "NO_PROXY",
            "http_proxy",
            "https_proxy",
            "all_proxy",
            "no_proxy",
        ),
    }
)
_AS_UV = {  # pip's setting -> uv's variable
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_EXTRA_INDEX_URL",
    "find-links": "UV_FIND_LINKS",
    "trusted-host": "UV_INSECURE_HOST",
    "default-timeout": "UV_HTTP_TIMEOUT",
    "timeout": "UV_HTTP_TIMEOUT",
    "retries": "UV_HTTP_RETRIES",
    "cert": "SSL_CERT_FILE",
    "client-cert": "SSL_CLIENT_CERT",
    "proxy": "ALL_PROXY",
}
_SETTINGS = (*_AS_UV, "no-index", "only-binary", "no-binary")
_CONFIG_BYTES = 1024 * 1024
_CREDENTIALS = re.compile(r"(?<=//)[^/\s@]+(?=@)")
_UNLIKE = re.compile(r"Hash mismatch for `([^`]+)`")
_FULL = re.compile(r"No space left on device|Disk quota exceeded|os error (?:28|122)\b")
_NETWORK = re.compile(
    r"error sending request|dns error|tcp connect error|Connection refused|Connection "
    r"reset|operation timed out|Network is unreachable"
    r"|Request failed after|network was disabled|Could not connect|invalid peer certificate|proxy"
)
_NO_WHEEL = re.compile(
    r"no usable wheels|building from source is disabled|Building source distributions"
)
_NO_FILE = re.compile(
    r"(?<!\S)(\S+) was not found in|there (?:is|are) no (?:version|versions) of (\S+)|Because "
    r"(\S+) has no "
)
_BUILD = re.compile(r"Failed to build|build backend")


class NoWheel(Inconclusive):
    """Only a source archive fits a pin of the lock."""


def pip_settings(outer: Mapping[str, str]) -> dict[str, str]:
    """pip's settings as pip itself finds them: its configuration files for the machine and the
    user, `PIP_CONFIG_FILE`, then `PIP_*`. A file that pip could not read is left out."""
    found: dict[str, str] = {}
    home, named = outer.get("HOME", "/"), outer.get("PIP_CONFIG_FILE", "")
    machine = [
        f"{place}/pip/pip.conf" for place in outer.get("XDG_CONFIG_DIRS", "/etc/xdg").split(":")
    ]
    user = [
        f"{home}/.pip/pip.conf",
        f"{outer.get('XDG_CONFIG_HOME', f'{home}/.config')}/pip/pip.conf",
    ]
    for path in (
        ()
        if named == os.devnull
        else (*machine, "/etc/pip.conf", *user, *([named] if named else []))
    ):
        parser = configparser.RawConfigParser()
        try:
            with open(path, encoding="utf-8") as file:
                parser.read_string(file.read(_CONFIG_BYTES))
        except (OSError, ValueError, configparser.Error):
            continue
        for section in ("global", "install"):
            if parser.has_section(section):
                found.update((key.replace("_", "-"), value) for key, value in parser.items(section))
    found.update(
        (name[4:].lower().replace("_", "-"), value)
        for name, value in outer.items()
        if name.startswith("PIP_")
    )
    return {name: value for name, value in found.items() if name in _SETTINGS and value.strip()}


def uv_environment(
    outer: Mapping[str, str], settings: Mapping[str, str], work: Path, cache: Path
) -> dict[str, str]:
    """The whole environment of uv and of whatever it builds; HOME and TMPDIR lie in `work`."""
    kept = {
        name: value
        for name, value in outer.items()
        if name in _KEPT or name.startswith(("LC_", "PYENV_"))
    }
    bundle = next(
        (outer[name] for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE") if outer.get(name)), ""
    )
    kept |= {"SSL_CERT_FILE": bundle} if bundle and "SSL_CERT_FILE" not in kept else {}
    for name, variable in _AS_UV.items():
        if name in settings:
            kept[variable] = ("," if name == "find-links" else " ").join(settings[name].split())
    own = {"HOME": str(work / "home"), "TMPDIR": str(work / "tmp"), "PYTHONNOUSERSITE": "1"}
    return {
        "PATH": os.defpath,
        **kept,
        **own,
        "UV_CACHE_DIR": str(cache),
        "UV_NO_CONFIG": "1",
        "UV_PYTHON_DOWNLOADS": "never",
    }


def holds_credentials(environment: Mapping[str, str]) -> bool:
    """Whether code that is built could read a password or a key from what uv is told."""
    return bool(environment.get("SSL_CLIENT_CERT")) or any(
        _CREDENTIALS.search(value) for value in environment.values()
    )


def install_command(
    uv: str,
    python: Path,
    requirements: Path,
    excluded: Path,
    settings: Mapping[str, str],
    builds: bool,
) -> list[str]:
    """The install. The lock names all there is to install and the hash of each, so nothing is
    resolved, and any index will do. Without `builds` no code of a distribution runs."""
    flags = (
        []
        if settings.get("no-index", "").lower() not in ("1", "true", "yes", "on")
        else ["--no-index"]
    )
    for name in ("only-binary", "no-binary") if builds else ():
        flags += [
            part
            for item in re.split(r"[\s,]+", settings.get(name, "").strip())
            if item
            for part in (f"--{name}", item)
        ]
    return [
        *(
            uv,
            "pip",
            "install",
            "--quiet",
            "--python",
            str(python),
            "--require-hashes",
            "--no-deps",
            "--compile-bytecode",
            "--no-progress",
        ),
        *(
            "--index-strategy",
            "unsafe-best-match",
            "--color",
            "never",
            *(() if builds else ("--only-binary", ":all:")),
            *flags,
        ),
        *("--excludes", str(excluded), "--requirements", str(requirements)),
    ]


def run(
    command: Sequence[str], what: str, cwd: Path, environment: Mapping[str, str], sandbox: Sandbox
) -> None:
    """Run one command of the install to its end. Raises Inconclusive with what it said where it
    fails; `what` names it."""
    try:
        ended = supervise(
            list(command),
            cwd=cwd,
            env=environment,
            timeout=INSTALL_SECONDS,
            tick=lambda _: None,
            sandbox=sandbox,
        )
    except OSError as error:
        raise _failed(
            f"{what} cannot be started: {error.strerror or error}",
            "see that every user may start it",
        ) from None
    if ended.timed_out:
        remedy = "see what it waits for, or lock wheels in place of sources"
        raise _failed(f"{what} was not done after {INSTALL_SECONDS / 60:g} minutes", remedy)
    if ended.exit_code or ended.signal is not None:
        raise explained(ended.tail, what)


def explained(tail: Sequence[str], what: str) -> Inconclusive:
    """uv's failure in a sentence, from the end of what it printed; passwords in addresses are left
    out."""
    lines = [
        _CREDENTIALS.sub("***", line.strip())
        for line in tail
        if line.strip() and not line.startswith("warning:")
    ]
    text, said = (
        "\n".join(lines),
        "; ".join(for_terminal(line, 300) for line in lines[-3:]) or "it said nothing",
    )
    if names := _UNLIKE.findall(text):
        message = (
            "an index served other bytes than were locked for "
            f"{for_terminal(', '.join(dict.fromkeys(names)), 300)}"
        )
        return _failed(
            message,
            "find out which of the two is right before locking again: a release's files never "
            "change",
            "install/hash",
        )
    if _FULL.search(text):
        return _failed(
            f"{what} ran out of space: {said}",
            "make room in the cache folder, or name one with room",
            "install/no-space",
        )
    if _NO_WHEEL.search(text):
        remedy = (
            "lock a wheel in its place, or give the index without a password: only then are source "
            "archives built"
        )
        return NoWheel(
            f"env.install: a distribution has no wheel that fits: {said}",
            remedy=remedy,
            reason_id="install/not-found",
        )
    if _BUILD.search(text):
        return _failed(
            f"a source archive could not be built: {said}",
            "lock a wheel in its place, or build it into the image",
            "install/build",
        )
    if _NETWORK.search(text):
        remedy = (
            "let the job reach the package index while it installs, or give pip a folder of wheels "
            "(PIP_FIND_LINKS with PIP_NO_INDEX=1); what the cache holds already needs neither"
        )
        return _failed(
            f"{what} could not reach the package index: {said}", remedy, "install/network"
        )
    if missing := _NO_FILE.search(" ".join(lines)):
        name = next(group for group in missing.groups() if group)
        remedy = (
            "lock for this Python and platform; name the index that has it (PIP_EXTRA_INDEX_URL); "
            "see that the job reaches it"
        )
        return _failed(
            f"no index has a file of {for_terminal(name, 200)} that fits: {said}",
            remedy,
            "install/not-found",
        )
    return _failed(
        f"{what} failed: {said}",
        "run `uv pip install --require-hashes --no-deps -r` with the lockfile to see all of it",
    )


def _failed(message: str, remedy: str, reason: str = "install/failed") -> Inconclusive:
    return Inconclusive(f"env.install: {message}", remedy=remedy, reason_id=reason)
