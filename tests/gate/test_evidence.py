"""`repro-gate check` and `explain`: the checks that need no training, through the command line, in
real repositories."""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path

import pytest

from repro_gate.checks import ALL
from repro_gate.cli import main
from repro_gate.data import cache, hashing
from repro_gate.data.cache import DataCache
from repro_gate.gate.evidence import NEED_TRAINING
from tests.support.gates import command, environment
from tests.support.repositories import git, repository

SPEC = (
    "version: 1\ntrain: {run: python train.py}\ndata: [{path: train.bin, sha256: SUM}]\nchecklist: "
    "{profile: PROFILE}\n"
)


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A committed checkout with a licence and declared data, and a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    root = repository(tmp_path / "work")
    (root / "LICENSE").write_text("MIT License\n")
    (root / "train.bin").write_bytes(b"data")
    return root


SUM = hashlib.sha256(b"data").hexdigest()


def commit(root: Path, profile: str = "basic", digest: str = SUM) -> None:
    (root / "repro.yml").write_text(SPEC.replace("SUM", digest).replace("PROFILE", profile))
    git(root, "add", "-A")
    git(root, "commit", "-qm", "spec")


def check(root: Path, tmp_path: Path, *options: str) -> tuple[int, dict[str, str]]:
    """Exit code, and status by check."""
    out = tmp_path / "checks.json"
    code = main(["check", str(root), "--json", str(out), "--quiet", *options])
    return code, {item["id"]: item["status"] for item in json.loads(out.read_text())["checklist"]}


NAMES = ("env/lockfile", "data/checksums", "code/clean")


def test_what_was_never_declared_fails_in_strict_alone(checkout: Path, tmp_path: Path) -> None:
    for profile, digest, code, statuses in (
        ("basic", SUM, 0, ["skip", "pass", "pass"]),
        ("strict", SUM, 1, ["fail", "pass", "pass"]),
        # declared data that is not what it was
        ("basic", "0" * 64, 1, ["skip", "fail", "pass"]),
    ):
        commit(checkout, profile, digest)
        exit_code, found = check(checkout, tmp_path)
        assert (exit_code, [found[name] for name in NAMES]) == (code, statuses)


def test_only_checks_that_need_no_training_are_made_and_what_is_not_declared_is_one_line(
    checkout: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # pytest-xdist sets it, and lines are wrapped there
    monkeypatch.delenv("COLUMNS", raising=False)
    commit(checkout)
    found, out = check(checkout, tmp_path)[1], capsys.readouterr().out
    assert set(found) == {item.id for item in ALL} - set(NEED_TRAINING)
    assert len(found) + len(NEED_TRAINING) == len(ALL) == 34
    assert f"{len(NEED_TRAINING)} need training" in out
    assert out.count("not declared: image, lockfile") == 1 and "env/lockfile" not in out


def test_a_digest_is_kept(checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "RACY_NS", -(10**10))
    monkeypatch.setattr(hashing, "SMALL", 0)
    commit(checkout)
    assert check(checkout, tmp_path, "--no-cache")[0] == 0 and not (tmp_path / "cache").exists()
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache/repro-gate").write_text("no folder")
    assert check(checkout, tmp_path)[0] == 0, "a cache that cannot be used changes no answer"
    (tmp_path / "cache/repro-gate").unlink()
    assert check(checkout, tmp_path)[0] == 0
    monkeypatch.setattr(DataCache, "find", lambda *_: {"sha256": "0" * 64})
    assert check(checkout, tmp_path)[0] == 1
    assert check(checkout, tmp_path, "--no-cache")[0] == 0


def test_a_closed_pipe_is_no_verdict(checkout: Path) -> None:
    commit(checkout)
    line = subprocess.list2cmdline(command("check", checkout))
    done = subprocess.run(
        ["bash", "-c", f"{line} | head -1 >/dev/null; echo ${{PIPESTATUS[0]}}"],
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    # 0 where all was written before `head` left
    assert done.stdout.strip() in ("0", "141") and "Traceback" not in done.stderr


def test_pages_are_printed_and_a_wrong_name_is_mended(capsys: pytest.CaptureFixture[str]) -> None:
    for known, typo in (
        ("data/checksums", "data/checksum"),
        ("wall-clock", "wall-clok"),
        ("run/crashed", "run/crashd"),
    ):
        assert main(["explain", known]) == 0 and capsys.readouterr().out.startswith(f"# {known}\n")
        assert main(["explain", typo]) == 2
        assert f"did you mean `{known}`?" in capsys.readouterr().err
    assert main(["explain"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [item.id for item in ALL]


def test_what_links_of_a_checkout_lead_to_is_told_nowhere(
    checkout: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each file that is read and told about in its own words, as a link to a secret that only the
    gate can read, in several forms."""
    secret, words = tmp_path / "secret", "words-of-somebody"
    secret.write_text(f'{{"{words}": "{words}"}}\n{words} @@ =\n  {words}: [{words}\n')
    with open(checkout / ".git" / "config", "a") as config:
        config.write(f'[http "https://{words}.example/"]\n\textraheader = {words}\n')
    (checkout / ".github" / "workflows").mkdir(parents=True)
    names = ["a.csv.dvc", "requirements.lock", "uv.lock", "pyproject.toml", "repro.baseline.yml"]
    names += [".github/workflows/ci.yml", "action.yml", "LICENSE", "code.py"]
    for target in (str(secret), ".git/config", "/proc/self/environ"):
        for name in names:
            up = "" if target.startswith("/") else "../" * name.count("/")
            (checkout / name).unlink(missing_ok=True)
            (checkout / name).symlink_to(up + target)
        for lock in ("requirements.lock", "uv.lock"):
            (checkout / "repro.yml").write_text(
                f"version: 1\ntrain: {{run: python train.py}}\nenv: {{lockfile: {lock}}}\n"
                f"data: [{{path: a.csv.dvc}}, {{path: code.py}}, {{path: {secret}}}]\n"
            )
            git(checkout, "add", "-A")
            git(checkout, "commit", "-qm", "links", "--allow-empty")
            _, found = check(checkout, tmp_path)
            said = "".join([*capsys.readouterr(), (tmp_path / "checks.json").read_text()])
            assert words not in said and "XDG_CACHE_HOME" not in said, said
            assert found["env/lockfile"] == "fail" and found["data/checksums"] == "fail"
