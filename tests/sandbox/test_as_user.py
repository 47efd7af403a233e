"""What a training puts where the gate reads leads to nothing of the gate's."""

from __future__ import annotations

import os
import threading
from functools import partial
from pathlib import Path

import pytest

from repro_gate.files import NotRegular, copy_file
from repro_gate.runs.artifacts import collect
from repro_gate.sandbox.identity import (
    UID,
    as_training_user,
    chown_to_training,
    let_group_pass,
    open_written,
    seal,
)
from tests.support.starting import APPEND, LIST, OWN, READ, SAME, attempt, needs_own_user

pytestmark = needs_own_user


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder as a gate run has: the training may pass through it."""
    found = tmp_path / "place"
    found.mkdir()
    let_group_pass(OWN, found)
    return found


@pytest.fixture
def written(place: Path) -> Path:
    """A folder that the training has written to."""
    folder = place / "written"
    folder.mkdir()
    for name in ("trace", "1.final.safetensors"):
        (folder / name).write_bytes(b"line\n")
    chown_to_training(OWN, folder)
    return folder


def owner_and_mode(path: Path) -> tuple[int, int, int]:
    state = os.stat(path)
    return state.st_uid, state.st_gid, state.st_mode & 0o777


def read(path: Path) -> bytes:
    with os.fdopen(open_written(path, OWN), "rb") as file:
        return file.read()


def test_this_thread_sees_as_the_training_does_and_then_as_root_again(secret: Path) -> None:
    found: list[bytes] = []
    looking = threading.Event()

    def look() -> None:
        looking.wait(20)
        found.append(secret.read_bytes())

    # what is started inside would inherit
    other = threading.Thread(target=look)
    other.start()
    with as_training_user(OWN):
        looking.set()
        other.join()
        with pytest.raises(PermissionError):
            secret.read_bytes()
    with as_training_user(SAME):
        assert found == [secret.read_bytes()] == [b"secret"]


def test_its_own_file_alone_is_read(written: Path, secret: Path) -> None:
    assert read(written / "trace") == b"line\n"
    os.symlink(secret, written / "link")
    os.mkfifo(written / "pipe")
    (written / "folder").mkdir()
    for name in ("link", "pipe", "folder"):
        with pytest.raises(OSError, match=r"Too many levels|not a regular file|Permission denied"):
            read(written / name)
    # of somebody else, even where it could be read
    (written / "of-root").write_bytes(b"x")
    (written / "of-root").chmod(0o644)
    with pytest.raises(NotRegular, match="not the training's own"):
        read(written / "of-root")
    os.link(written / "trace", written / "again")
    with pytest.raises(NotRegular, match="more than one name"):
        read(written / "again")
    # a second name of the gate's file, and folders swapped for links
    os.link(secret, written / "hard")
    os.symlink(secret.parent, written / "sub")
    (secret.parent / "closed").mkdir(mode=0o700)
    (secret.parent / "closed" / "plain").write_bytes(b"x")
    os.symlink(secret.parent / "closed", written / "through")
    for name in ("hard", "sub/secret", "through/plain"):
        with pytest.raises(PermissionError):
            read(written / name)


@pytest.mark.parametrize("late", [False, True])
def test_a_trace_swapped_as_it_is_opened_never_shows_the_secret(
    written: Path, secret: Path, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    """At the two worst moments: just before the kernel looks, and just after."""
    opens, trace = os.open, written / "trace"

    def opened(path: Path, flags: int) -> int:
        handle = opens(path, flags) if late else -1
        os.symlink(secret, written / "new")
        os.replace(written / "new", trace)
        return handle if late else opens(path, flags)

    monkeypatch.setattr(os, "open", opened)
    with pytest.raises(OSError, match="more than one name" if late else "Too many levels"):
        read(trace)


def test_artifacts_are_what_training_can_read(written: Path, secret: Path, tmp_path: Path) -> None:
    """What a link leads to is judged before it is looked at: the training may not look there."""
    (written / "out/shut").mkdir(parents=True)
    (written / "out/own").touch()
    os.link(secret, written / "out/hard.pt")
    links = {"inside": written / "trace", "closed": "shut/x", "own": "own"}
    links |= {"environ": "/proc/self/environ", "hidden": "/root/.nowhere/x"}
    for name, target in links.items():
        (written / f"out/{name}.pt").symlink_to(target)
    for name in ("own", "shut"):
        (written / "out" / name).chmod(0)
    globs, as_owner = ["out/*.pt", "out/shut/*"], partial(as_training_user, OWN)
    found, unmatched = collect(written, globs, tmp_path / "kept", as_owner)
    out, unreadable = "that leads out of the working directory", "file without permission to read"
    assert {item.name: item.kind for item in found} == {
        "out/inside.pt": "file",
        "out/environ.pt": f"link to /proc/self/environ {out}",
        "out/hidden.pt": f"link to /root/.nowhere/x {out}",
        **{f"out/{name}.pt": unreadable for name in ("hard", "closed", "own")},
    }
    assert unmatched == ("out/shut/*",)
    assert not any(item.problem for item in found)
    assert [path.read_bytes() for path in (tmp_path / "kept").iterdir()] == [b"line\n"]
    with pytest.raises(PermissionError):
        copy_file(secret, tmp_path / "copy", partial(as_training_user, OWN))
    assert copy_file(secret, tmp_path / "copy") == 6
    # as root looks, the secret is an artifact
    taken, _ = collect(written, ["out/hard.pt"], tmp_path / "as-root")
    assert taken[0].readable and taken[0].path.read_bytes() == b"secret"


def test_links_are_given_not_what_they_lead_to(place: Path, secret: Path) -> None:
    (place / "tree" / "deep").mkdir(parents=True)
    (place / "tree" / "deep" / "file").write_bytes(b"x")
    os.symlink(secret, place / "tree" / "link")
    os.symlink(secret.parent, place / "tree" / "folder")
    chown_to_training(SAME, place / "tree")
    seal(SAME, place / "tree", "")
    assert os.stat(place / "tree").st_uid == 0  # one user for both
    chown_to_training(OWN, place / "tree")
    given = [place / "tree", *(place / "tree").rglob("*")]
    assert {os.lstat(path).st_uid for path in given} == {UID}
    assert os.stat(secret).st_uid == os.stat(secret.parent).st_uid == 0


def test_of_what_is_sealed_a_later_run_reads_kept_tensors_alone(written: Path) -> None:
    kept = written / "1.final.safetensors"
    for source, path in ((APPEND, written / "trace"), (READ, written / "trace"), (LIST, written)):
        assert "Error" not in attempt(OWN, source, path)
    seal(OWN, written, ".safetensors")
    assert attempt(OWN, READ, kept) == "1"
    for source, path in ((READ, written / "trace"), (LIST, written), (APPEND, written / "new")):
        assert attempt(OWN, source, path).startswith("PermissionError")
    for act in (
        "open(sys.argv[1], 'ab')",
        "os.unlink(sys.argv[1])",
        "os.chmod(sys.argv[1], 0o777)",
    ):
        assert attempt(OWN, f"import os, sys; {act}", kept).startswith("PermissionError")
    assert [owner_and_mode(path) for path in (written / "trace", kept)] == [
        (0, UID, 0o400),
        (0, UID, 0o440),
    ]


def test_sealing_gives_nothing_of_others_away(written: Path, secret: Path) -> None:
    """A hard link to a secret, sealed, would be readable by the training's group."""
    os.link(secret, written / "hard")
    os.symlink(secret, written / "link")
    (written / "folder").mkdir()
    os.mkfifo(written / "pipe")
    for name in ("trace", "1.final.safetensors"):
        os.link(written / name, written.parent / f"second-{name}")
    seal(OWN, written, "")
    assert list(written.iterdir()) == []
    assert owner_and_mode(secret) == (0, 0, 0o600) and secret.read_bytes() == b"secret"
