"""A gate that shares its user with the training starts itself anew without secrets, once."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

import pytest

from repro_gate.sandbox import reexec
from repro_gate.sandbox.reexec import HANDED, TAKEN_OUT, handed_over, start_anew
from tests.support.gates import ROOT
from tests.support.starting import ran

# Says its process id before and after, and what the world sees of it then.
GATE = """
import json, os, sys
from repro_gate.sandbox.reexec import handed_over, start_anew
print("started", os.getpid(), flush=True)
start_anew(os.environ)
with open("/proc/self/environ", "rb") as file:
    seen = file.read().decode()
handed = handed_over()
descriptors = [os.readlink(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}")]
found = {"handed": handed, "again": handed_over(), "environ": seen, "names": sorted(os.environ), "argv": sys.argv[1:]}
found |= {"isolated": sys.flags.isolated, "descriptors": descriptors, "pid": os.getpid(), "owner": os.stat("/proc/self/environ").st_uid}
print(json.dumps(found))
"""


def gate(tmp_path: Path, *flags: str, **environment: str) -> tuple[list[str], dict[str, object]]:
    script = tmp_path / "gate.py"
    script.write_text(f"import sys; sys.path.insert(0, {str(ROOT)!r})\n" + GATE)
    command = [sys.executable, *flags, str(script), "--an", "argument"]
    done = ran(command, {"PATH": os.environ["PATH"], **environment}, check=True)
    *started, found = done.stdout.splitlines()
    return started, json.loads(found)


linux = pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")


@linux
def test_secrets_leave_the_environment_and_the_token_is_handed_over(tmp_path: Path) -> None:
    secrets = {"INPUT_TOKEN": "t0k", "AWS_REGION": "aws", "MY_PASSWORD": "pw"}
    leads = {"SSH_AUTH_SOCK": "/agent", "GITHUB_ENV": "/env"}
    started, found = gate(tmp_path, **secrets, **leads, LANG="C")
    assert found["handed"] == {"INPUT_TOKEN": "t0k"} and found["again"] == {}
    environ = str(found["environ"])
    assert "LANG=C" in environ and f"{TAKEN_OUT}=AWS_REGION,INPUT_TOKEN,MY_PASSWORD" in environ
    for value in ("t0k", "aws", "pw", "/agent", "/env"):
        assert value not in environ
    assert HANDED not in found["names"]  # type: ignore[operator]
    # twice, under one process id
    assert len(started) == 2 and len({line.split()[1] for line in started}) == 1
    assert not any("memfd" in str(item) or "deleted" in str(item) for item in found["descriptors"])  # type: ignore[attr-defined]
    assert found["argv"] == ["--an", "argument"]


@linux
def test_flags_stay_and_without_a_secret_nothing_is_started_anew(tmp_path: Path) -> None:
    assert gate(tmp_path, "-I", GITHUB_TOKEN="x")[1]["isolated"] == 1
    assert gate(tmp_path, GITHUB_TOKEN="x")[1]["isolated"] == 0
    for more in ({}, {"SSH_AUTH_SOCK": "/agent", "XAUTHORITY": "/x", "DOCKER_HOST": "unix:///d"}):
        started, found = gate(tmp_path, LANG="C", **more)
        assert len(started) == 1 and found["handed"] == {}


@linux
def test_memory_is_hidden_from_then_on() -> None:
    program = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); import ctypes; from "
        "repro_gate.sandbox.reexec import handed_over; say = lambda: "
        "print(ctypes.CDLL(None).prctl(3)); say(); handed_over(); say()"  # 3: PR_GET_DUMPABLE
    )
    assert ran([sys.executable, "-c", program], check=True).stdout.split() == ["1", "0"]


def test_only_a_file_without_a_name_is_believed(tmp_path: Path) -> None:
    for value in ("", "0", "1", "2", "999", "-1", "x", "9" * 30):
        assert handed_over({HANDED: value}) == {}
    (tmp_path / "planted").write_text('{"INPUT_TOKEN": "mine"}')
    handle = os.open(tmp_path / "planted", os.O_RDONLY)
    assert handed_over({HANDED: str(handle)}) == {}
    os.close(handle)
    for content, expected in (('{"A": "b"}', {"A": "b"}), ("[]", {}), ("{", {})):
        with tempfile.TemporaryFile() as file:
            file.write(content.encode())
            file.seek(0)
            environment = {HANDED: str(os.dup(file.fileno()))}
            assert handed_over(environment) == expected and environment == {}


def test_without_memory_files_the_hand_over_works_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on macOS. What would be started is looked at, and its descriptor read."""
    given: list[tuple[str, list[str], dict[str, str]]] = []
    monkeypatch.delattr(os, "memfd_create", raising=False)
    monkeypatch.setattr(os, "execve", lambda *call: given.append(call))
    monkeypatch.setattr(sys, "orig_argv", ["python", "-m", "repro_gate"])
    start_anew({"PATH": "/bin"})
    assert given == []  # no secret
    tokens = {"GITHUB_TOKEN": "x", "GH_TOKEN": "y", "OTHER_TOKEN": "z"}
    start_anew({**tokens, "HOME": "/h"}, keep=["GITHUB_TOKEN", "HOME"])
    [(program, argv, environment)] = given
    assert (program, argv) == (sys.executable, [sys.executable, "-m", "repro_gate"])
    assert environment.keys() == {"HOME", HANDED, TAKEN_OUT}
    assert os.get_inheritable(int(environment[HANDED]))
    assert handed_over(environment) == {"GITHUB_TOKEN": "x"}


SECRET = """
INPUT_TOKEN ACTIONS_ID_TOKEN_REQUEST_URL GOOGLE_APPLICATION_CREDENTIALS AWS_PROFILE
DATABASE_URL CELERY_BROKER_URL NPM_CONFIG__AUTH GH_PAT SENTRY_DSN MYSQL_PWD REDIS_PASS
KAGGLE_KEY SSH_PASSPHRASE SLACK_WEBHOOK_URL AZ_CONNECTION_STRING
"""
LEADS = "KUBECONFIG PGPASSFILE SSH_AUTH_SOCK DOCKER_HOST ACTIONS_CACHE_URL GITHUB_ENV"
PLAIN = """
PATH HOME GITHUB_OUTPUT GITHUB_REPOSITORY INPUT_SPEC PIP_INDEX_URL CUDA_VISIBLE_DEVICES
PWD OLDPWD GPG_KEY TRITON_DUMP_PASSES LD_LIBRARY_PATH
"""


def test_names_tell_secrets_from_the_rest() -> None:
    secret, leads, plain = SECRET.split(), LEADS.split(), PLAIN.split()
    assert reexec.secret_names([*secret, *leads, *plain]) == tuple(sorted(secret))
    assert reexec.taken_out([*secret, *leads, *plain]) == tuple(sorted([*secret, *leads]))
