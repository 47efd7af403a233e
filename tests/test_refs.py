"""Other commits of a checkout: named, read and exported without checking anything out."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

import pytest

from repro_gate.errors import UsageError
from repro_gate.refs import commit_of, export, file_at, merge_base
from tests.repositories import git, repository, write


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Two commits on main: train.py prints 1, then 2."""
    root = repository(tmp_path / "work")
    write(root, train_dot_py="print(2)")
    git(root, "commit", "-qam", "second")
    return root


def test_a_ref_is_a_commit_however_it_is_named(checkout: Path) -> None:
    first = git(checkout, "rev-parse", "HEAD~1")
    git(checkout, "tag", "v1", "HEAD~1")
    assert {commit_of(checkout, name, "--base") for name in ("HEAD~1", "v1", first, first[:10], "main~1")} == {first}


@pytest.mark.parametrize("name", ["nowhere", "", "--output=/tmp/x", "-h", "HEAD:train.py", "a\0b"])
def test_what_is_no_commit_is_refused_with_the_option_and_a_remedy(checkout: Path, name: str) -> None:
    with pytest.raises(UsageError, match=r"--base .*: no such commit") as caught:
        commit_of(checkout, name, "--base")
    assert "fetch" in caught.value.remedy


def test_a_file_of_another_commit_is_read_as_it_was(checkout: Path) -> None:
    first = commit_of(checkout, "HEAD~1", "--base")
    assert file_at(checkout, first, "train.py", 1000) == b"print(1)"
    assert file_at(checkout, first, "pkg/model.py", 1000) == b"x = 1"
    assert file_at(checkout, first, "pkg", 1000) is None
    assert file_at(checkout, first, "gone.py", 1000) is None
    assert len(file_at(checkout, first, "train.py", 3) or b"") == 4, "longer than the limit is not read"


def test_a_name_with_wildcards_is_only_itself(checkout: Path) -> None:
    write(checkout, **{"a*": "star"})
    git(checkout, "add", "-A")
    git(checkout, "commit", "-qm", "star")
    head = commit_of(checkout, "HEAD", "--base")
    assert file_at(checkout, head, "a*", 100) == b"star"
    assert file_at(checkout, head, "t*", 100) is None


def test_a_link_is_no_file(checkout: Path) -> None:
    (checkout / "repro.yml").symlink_to("/etc/passwd")
    git(checkout, "add", "-A")
    git(checkout, "commit", "-qm", "link")
    assert file_at(checkout, commit_of(checkout, "HEAD", "--base"), "repro.yml", 10_000) is None


def test_the_merge_base_is_where_the_change_began(checkout: Path) -> None:
    start = git(checkout, "rev-parse", "HEAD")
    git(checkout, "switch", "-qc", "change")
    write(checkout, new_dot_py="")
    git(checkout, "add", "-A")
    git(checkout, "commit", "-qm", "change")
    git(checkout, "switch", "-q", "main")
    write(checkout, other_dot_py="")
    git(checkout, "add", "-A")
    git(checkout, "commit", "-qm", "main moves on")
    tip = git(checkout, "rev-parse", "HEAD")
    git(checkout, "switch", "-q", "change")
    assert merge_base(checkout, tip) == start
    git(checkout, "switch", "-q", "--orphan", "alone")
    git(checkout, "commit", "-qm", "unrelated", "--allow-empty")
    assert merge_base(checkout, tip) == tip, "where none is known, the commit itself"


def test_an_export_is_the_tree_of_the_commit(checkout: Path, tmp_path: Path) -> None:
    write(checkout, run_dot_sh="#!/bin/sh")
    (checkout / "run.sh").chmod(0o755)
    (checkout / "current").symlink_to("pkg")
    write(checkout, data__big_dot_bin="x" * 100)
    git(checkout, "add", "-A")
    git(checkout, "commit", "-qm", "third")
    commit = commit_of(checkout, "HEAD", "--against")
    write(checkout, train_dot_py="print('edited since')", untracked_dot_py="")
    before = git(checkout, "status", "--porcelain")
    out = export(checkout, commit, tmp_path / "out", [checkout / "data"])
    assert sorted(str(path.relative_to(out.root)) for path in out.root.rglob("*")) == sorted(
        [".gitignore", "current", "pkg", "pkg/model.py", "run.sh", "train.py"]
    )
    assert (out.root / "train.py").read_text() == "print(2)" and os.readlink(out.root / "current") == "pkg"
    assert os.access(out.root / "run.sh", os.X_OK) and not os.access(out.root / "train.py", os.X_OK)
    assert (out.files, out.notes, out.source) == (5, (), checkout)
    assert git(checkout, "status", "--porcelain") == before, "nothing of the checkout has changed"


def test_an_export_holds_submodules_at_the_commit_they_had(tmp_path: Path) -> None:
    library = repository(tmp_path / "library")
    root = repository(tmp_path / "work")
    git(root, "submodule", "add", "-q", str(library), "vendor/library")
    git(root, "commit", "-qm", "with a submodule")
    commit = commit_of(root, "HEAD", "--against")
    write(root / "vendor/library", train_dot_py="print('newer')")
    git(root / "vendor/library", "commit", "-qam", "newer")
    out = export(root, commit, tmp_path / "out")
    assert (out.root / "vendor/library/train.py").read_text() == "print(1)"
    git(root, "submodule", "deinit", "--force", "vendor/library")
    (root / ".git/modules/vendor/library").rename(tmp_path / "away")
    out = export(root, commit, tmp_path / "again")
    assert not (out.root / "vendor/library/train.py").exists()
    assert any("vendor/library" in note and "not in this clone" in note for note in out.notes)


def test_an_export_resolves_lfs_contents_that_the_clone_has(checkout: Path, tmp_path: Path) -> None:
    content = b"weights" * 100
    oid = hashlib.sha256(content).hexdigest()
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize {len(content)}\n"
    write(checkout, model_dot_bin=pointer)
    git(checkout, "add", "-A")
    git(checkout, "commit", "-qm", "lfs")
    commit = commit_of(checkout, "HEAD", "--against")
    without = export(checkout, commit, tmp_path / "without")
    assert (without.root / "model.bin").read_text() == pointer and "LFS" in without.notes[0]
    store = checkout / ".git/lfs/objects" / oid[:2] / oid[2:4] / oid
    store.parent.mkdir(parents=True)
    store.write_bytes(content)
    resolved = export(checkout, commit, tmp_path / "with")
    assert (resolved.root / "model.bin").read_bytes() == content and not resolved.notes


def test_a_forged_tree_writes_nothing_outside(checkout: Path, tmp_path: Path) -> None:
    """Trees that `git checkout` would refuse: made by hand, as a hostile push could."""

    def tree(*entries: tuple[str, str, str]) -> str:
        raw = b"".join(f"{mode} {name}".encode() + b"\0" + bytes.fromhex(blob) for mode, name, blob in entries)
        done = subprocess.run(
            ["git", "hash-object", "-t", "tree", "-w", "--stdin", "--literally"], cwd=checkout, input=raw, capture_output=True, check=True
        )
        return done.stdout.decode().strip()

    blob = git(checkout, "rev-parse", "HEAD:train.py")
    outside = tmp_path / "escaped.py"
    inner = tree(("100644", "escaped.py", blob))
    twice = (("120000", "twice", git(checkout, "rev-parse", "HEAD:.gitignore")), ("40000", "twice", inner))
    hostile = tree(("40000", "..", inner), ("40000", ".git", inner), ("100644", "fine.py", blob), *twice)
    commit = git(checkout, "commit-tree", hostile, "-m", "hostile")
    out = export(checkout, commit, tmp_path / "deep" / "out")
    assert not outside.exists() and not (tmp_path / "deep" / "escaped.py").exists() and not (out.root / ".git").exists()
    assert (out.root / "fine.py").exists() and len(out.notes) == 3
    assert not (out.root / "twice").is_symlink()
