"""Other commits of a checkout: named, read and exported without checking anything out."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tracemalloc
from pathlib import Path

import pytest

from repro_gate.checkout import refs
from repro_gate.checkout.inspection import Tracked
from repro_gate.checkout.refs import commit_of, export, file_at, merge_base
from repro_gate.checkout.snapshot import Snapshot
from repro_gate.errors import UsageError
from tests.support.repositories import commit, git, repository, tree, write


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Two commits on main: train.py prints 1, then 2."""
    root = repository(tmp_path / "work")
    commit(root, train_dot_py="print(2)")
    return root


def test_a_ref_is_a_commit_however_it_is_named_and_what_is_none_is_refused(checkout: Path) -> None:
    first = git(checkout, "rev-parse", "HEAD~1")
    git(checkout, "tag", "v1", "HEAD~1")
    for name in ("HEAD~1", "v1", first, first[:10], "main~1"):
        assert commit_of(checkout, name, "--base") == first
    for name in ("nowhere", "", "--output=/tmp/x", "-h", "HEAD:train.py", "a\0b"):
        with pytest.raises(UsageError, match=r"--base .*: no such commit") as caught:
            commit_of(checkout, name, "--base")
        assert "fetch" in caught.value.remedy


def test_files_of_another_commit_and_the_merge_base_are_read(checkout: Path) -> None:
    (checkout / "repro.yml").symlink_to("/etc/passwd")
    head = commit(checkout, **{"a*": "star"})
    first = commit_of(checkout, "HEAD~2", "--base")
    assert file_at(checkout, first, "train.py", 1000) == b"print(1)"
    assert len(file_at(checkout, first, "train.py", 3) or b"") == 4, "too long is not read"
    assert file_at(checkout, head, "a*", 100) == b"star"
    leaving = ("../outside", "/etc/passwd", "pkg/../train.py", ".git/config")
    for name in ("t*", "pkg", "gone.py", "repro.yml", "a\0b", "x" * 200_000, "\ud800", *leaving):
        assert file_at(checkout, head, name, 10_000) is None, name
    start = git(checkout, "rev-parse", "HEAD")
    git(checkout, "switch", "-qc", "change")
    commit(checkout, new_dot_py="")
    git(checkout, "switch", "-q", "main")
    tip = commit(checkout, other_dot_py="")
    git(checkout, "switch", "-q", "change")
    assert merge_base(checkout, tip) == start
    git(checkout, "switch", "-q", "--orphan", "alone")
    commit(checkout)
    assert merge_base(checkout, tip) == tip, "where none is known, the commit itself"


def test_an_export_is_the_tree_of_the_commit(checkout: Path, tmp_path: Path) -> None:
    write(checkout, run_dot_sh="#!/bin/sh")
    (checkout / "run.sh").chmod(0o755)
    (checkout / "current").symlink_to("pkg")
    third = commit(checkout)
    write(checkout, train_dot_py="print('edited since')", untracked_dot_py="")
    before = git(checkout, "status", "--porcelain")
    out = export(checkout, third, tmp_path / "out")
    names = sorted(str(path.relative_to(out.root)) for path in out.root.rglob("*"))
    assert names == [".gitignore", "current", "pkg", "pkg/model.py", "run.sh", "train.py"]
    assert (out.root / "train.py").read_text() == "print(2)"
    assert os.readlink(out.root / "current") == "pkg"
    assert os.access(out.root / "run.sh", os.X_OK) and not os.access(out.root / "train.py", os.X_OK)
    assert (out.files, out.notes, out.source) == (5, (), checkout)
    assert git(checkout, "status", "--porcelain") == before, "nothing of the checkout has changed"


def test_an_export_holds_submodules_at_the_commit_they_had(tmp_path: Path) -> None:
    library = repository(tmp_path / "library")
    root = repository(tmp_path / "work")
    git(root, "submodule", "add", "-q", str(library), "vendor/library")
    old = commit(root)
    commit(root / "vendor/library", train_dot_py="print('newer')")
    out = export(root, old, tmp_path / "out")
    assert (out.root / "vendor/library/train.py").read_text() == "print(1)"
    git(root, "submodule", "deinit", "--force", "vendor/library")
    (root / ".git/modules/vendor/library").rename(tmp_path / "away")
    out = export(root, old, tmp_path / "again")
    assert not (out.root / "vendor/library/train.py").exists()
    assert any("vendor/library" in note and "not in this clone" in note for note in out.notes)


def test_an_export_resolves_lfs_contents_that_the_clone_has(checkout: Path, tmp_path: Path) -> None:
    content = b"weights" * 100
    oid = hashlib.sha256(content).hexdigest()
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize {len(content)}\n"
    lfs = commit(checkout, model_dot_bin=pointer)
    without = export(checkout, lfs, tmp_path / "without")
    assert (without.root / "model.bin").read_text() == pointer and "LFS" in without.notes[0]
    store = checkout / ".git/lfs/objects" / oid[:2] / oid[2:4] / oid
    store.parent.mkdir(parents=True)
    store.write_bytes(content)
    resolved = export(checkout, lfs, tmp_path / "with")
    assert (resolved.root / "model.bin").read_bytes() == content and not resolved.notes


def forged(checkout: Path, *entries: tuple[str, str, str]) -> str:
    """A tree that `git add` would never make: (mode, name, object), as a hostile push could."""
    raw = b"".join(
        f"{mode} {name}".encode() + b"\0" + bytes.fromhex(oid) for mode, name, oid in entries
    )
    return made(checkout, "tree", raw)


def made(checkout: Path, kind: str, content: bytes) -> str:
    done = subprocess.run(
        ["git", "hash-object", "-t", kind, "-w", "--stdin", "--literally"],
        cwd=checkout,
        input=content,
        capture_output=True,
        check=True,
    )
    return done.stdout.decode().strip()


def exported(checkout: Path, destination: Path, *entries: tuple[str, str, str]) -> Snapshot:
    tree = forged(checkout, *entries)
    return export(checkout, git(checkout, "commit-tree", tree, "-m", "hostile"), destination)


@pytest.fixture
def blob(checkout: Path) -> str:
    return git(checkout, "rev-parse", "HEAD:train.py")


def test_no_forbidden_name_is_written_and_nothing_through_a_link(
    checkout: Path, tmp_path: Path, blob: str
) -> None:
    for name in ("..", ".git", "git~1"):
        inner, fine = forged(checkout, ("100644", "escaped.py", blob)), ("100644", "fine.py", blob)
        with pytest.raises(UsageError, match="invalid path"):
            exported(checkout, tmp_path / "deep/out", ("40000", name, inner), fine)
        assert tree(tmp_path / "deep") == [] and not (tmp_path / "escaped.py").exists()
    outside = tmp_path / "outside"
    outside.mkdir()
    link = ("120000", "a", made(checkout, "blob", os.fsencode(outside)))
    inner = forged(checkout, ("100644", "b", blob))
    exported(checkout, tmp_path / "out", link, ("40000", "a", inner))
    assert not list(outside.iterdir())
    out = exported(checkout, tmp_path / "again", link)  # alone it is what the commit says
    assert os.readlink(out.root / "a") == str(outside)


def test_an_unwritable_tree_is_refused(checkout: Path, tmp_path: Path, blob: str) -> None:
    for kind in ("long name", "deep", "folder as file", "empty link"):
        inner = deep = forged(checkout, ("100644", "b", blob))
        for _ in range(30):
            deep = forged(checkout, ("40000", "d" * 200, deep))
        entry = {
            "long name": ("100644", "l" * 300, blob),
            "deep": ("40000", "z", deep),
            "folder as file": ("100644", "x", inner),
            "empty link": ("120000", "x", made(checkout, "blob", b"")),
        }[kind]
        with pytest.raises(UsageError, match="the tree cannot be written as files") as caught:
            exported(checkout, tmp_path / "out", entry)
        assert len(str(caught.value)) < 600
    entries = (("100644", "lost", "12" * 20), ("100644", "train.py", blob))
    with pytest.raises(UsageError, match=r"cannot be written as files: .*lost"):
        exported(checkout, tmp_path / "out", *entries)
    lost = git(checkout, "commit-tree", forged(checkout, *entries), "-m", "lost")
    assert file_at(checkout, lost, "train.py", 100) == b"print(2)"
    with pytest.raises(UsageError, match="lost cannot be read"):
        file_at(checkout, lost, "lost", 100)


@pytest.mark.parametrize("lacking", ["blob:none", "tree:0"])
def test_what_a_partial_clone_lacks_is_named(checkout: Path, tmp_path: Path, lacking: str) -> None:
    git(checkout, "config", "uploadpack.allowFilter", "true")
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", f"--filter={lacking}", checkout.as_uri(), str(clone))
    first = commit_of(clone, "HEAD~1", "--base")
    for ask in (
        lambda: export(clone, first, tmp_path / "out"),
        lambda: file_at(clone, first, "train.py", 100),
    ):
        with pytest.raises(UsageError, match=first[:12]) as caught:
            ask()
        assert "git fetch --refetch --no-filter" in caught.value.remedy
    if lacking == "blob:none":
        git(clone, "fetch", "-q", "--refetch", "--no-filter")
        assert file_at(clone, first, "train.py", 100) == b"print(1)"
        out = export(clone, first, tmp_path / "out")
        assert (out.root / "train.py").read_text() == "print(1)"


def test_a_large_file_is_not_held_in_memory(checkout: Path, tmp_path: Path) -> None:
    size = 48 << 20
    with open(checkout / "big.bin", "wb") as file:
        file.truncate(size)
    big = commit(checkout)
    tracemalloc.start()
    try:
        out = export(checkout, big, tmp_path / "out")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (out.root / "big.bin").stat().st_size == size and peak < 8 << 20


ATTRIBUTES = """\
*.bat text eol=crlf
*.py ident
*.txt text working-tree-encoding=UTF-16LE
*.bin filter=evil
"""


def test_an_export_has_the_bytes_of_a_clean_checkout(checkout: Path, tmp_path: Path) -> None:
    """Line ends, identifiers and encodings as the commit's own attributes say, not as those of the
    checkout do; no filter is run."""
    write(checkout, _dot_gitattributes=ATTRIBUTES, sub___dot_gitattributes="*.bat eol=lf\n")
    (checkout / "text.txt").write_text("ü\n", encoding="utf-16-le")
    lines = dict.fromkeys(("run.bat", "sub/run.bat", "new\nline.bat"), "a\nb\n")
    attributes = commit(checkout, id_dot_py="# $Id$\n", model_dot_bin="x", **lines)
    clean = tmp_path / "clean"
    git(tmp_path, "clone", "-q", str(checkout), str(clean))
    git(checkout, "rm", "-q", ".gitattributes", "sub/.gitattributes")
    commit(checkout)
    git(checkout, "config", "filter.evil.smudge", f"touch {tmp_path}/ran; cat")
    out = export(checkout, attributes, tmp_path / "out")
    names = [name for name in tree(clean) if not name.startswith(".git/")]
    assert tree(out.root) == names and out.notes == () and out.files == len(names)
    content = {name: (out.root / name).read_bytes() for name in names}
    assert content == {name: (clean / name).read_bytes() for name in names}
    assert (content["run.bat"], content["sub/run.bat"]) == (b"a\r\nb\r\n", b"a\nb\n")
    assert b"$Id: " in content["id.py"] and content["text.txt"] == "ü\n".encode("utf-16-le")
    assert not (tmp_path / "ran").exists()


def test_the_checkouts_own_settings_hold_for_an_export_too(checkout: Path, tmp_path: Path) -> None:
    lines = commit(checkout, train_dot_py="a\nb\n")
    for name in ("core.autocrlf", "core.sparseCheckout", "core.splitIndex"):
        git(checkout, "config", name, "true")
    (checkout / ".git/info").mkdir(exist_ok=True)
    (checkout / ".git/info/sparse-checkout").write_text("/pkg/\n")
    before = tree(checkout / ".git")
    out = export(checkout, lines, tmp_path / "out")
    assert (out.root / "train.py").read_bytes() == b"a\r\nb\r\n"
    assert (out.root / "pkg/model.py").exists()
    assert tree(checkout / ".git") == before, "nothing was written into the repository"


def test_attributes_of_submodules_and_worktrees_hold(checkout: Path, tmp_path: Path) -> None:
    library = repository(tmp_path / "library")
    commit(library, _dot_gitattributes="* text eol=crlf\n", a_dot_txt="x\ny\n")
    git(checkout, "submodule", "add", "-q", str(library), "vendor")
    whole = commit(checkout)
    out = export(checkout, whole, tmp_path / "out")
    for root in (out.root, checkout):
        assert (root / "vendor/a.txt").read_bytes() == b"x\r\ny\r\n"
    assert (out.root / "train.py").read_bytes() == b"print(2)" and out.notes == ()
    git(checkout, "worktree", "add", "-q", str(tmp_path / "tree"), "-b", "other")
    again = export(tmp_path / "tree", whole, tmp_path / "again")
    assert (again.root / "train.py").read_text() == "print(2)"
    assert "submodule vendor" in again.notes[0]


def test_a_submodule_is_not_looked_for_through_a_link(checkout: Path, tmp_path: Path) -> None:
    repository(tmp_path / "elsewhere/sub")
    head = git(tmp_path / "elsewhere/sub", "rev-parse", "HEAD")
    (checkout / "link").symlink_to(tmp_path / "elsewhere")
    inner = forged(checkout, ("160000", "sub", head))
    out = exported(checkout, tmp_path / "out", ("40000", "link", inner))
    assert not tree(out.root) and "submodule link/sub" in out.notes[0]


def test_a_submodule_is_not_written_through_a_link(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Git keeps a link and what lies below it out of one index; should one have both all the same,
    nothing follows the link."""
    head = git(repository(checkout / "link/sub"), "rev-parse", "HEAD")
    (tmp_path / "outside").mkdir()
    link = ("120000", "link", made(checkout, "blob", os.fsencode(tmp_path / "outside")))
    both = [Tracked("120000", link[2], "link"), Tracked("160000", head, "link/sub")]
    monkeypatch.setattr(refs, "index_of", lambda root, apart: both)
    out = exported(checkout, tmp_path / "out", link)
    assert not list((tmp_path / "outside").iterdir()) and "submodule link/sub" in out.notes[0]
