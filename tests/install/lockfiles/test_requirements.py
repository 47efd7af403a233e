"""requirements.txt in pip's hash-checking mode, read as pip reads it."""

from __future__ import annotations

from pathlib import Path

import pytest

from repro_gate.install.lockfiles import read_lock
from repro_gate.install.lockfiles.model import Lock, LockfileError
from repro_gate.install.lockfiles.requirements import MAX_FILES

A = f"sha256:{'a' * 64}"


def read(folder: Path, text: str, **others: str) -> Lock:
    for name, content in {"requirements": text, **others}.items():
        (folder / f"{name}.txt").write_text(content)
    return read_lock(folder / "requirements.txt", folder)


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("torch==2.13.0", "torch: no hash"),
        ("torch", "torch: `any version` is no one version"),
        ("torch>=2", "torch: `>=2` is no one version"),
        (f"torch>=2 --hash={A}", "torch: `>=2` is no one version"),
        (f"torch==2.* --hash={A}", "torch: `==2.*` is no one version"),
        (f"torch==2,>1 --hash={A}", "is no one version"),
        (f"torch==2.13.0 --hash=md5:{'a' * 32}", "torch: md5:"),
        (f"torch==2.13.0 --hash={A[:-1]}", "is not a digest that pins a file"),
        ("-e .", ". is editable"),
        ("--editable=git+https://example.com/x.git", "is editable"),
        ("x @ git+https://example.com/x.git@main", "x: git+https://example.com/x.git@main is a repository"),
        ("git+https://example.com/x.git@main#egg=x", "x: git+https://example.com/x.git@main#egg=x is a repository"),
        ("x @ https://example.com/x-1.0-py3-none-any.whl", "x: no hash"),
        ("./wheels/x-1.0-py3-none-any.whl", "x: no hash"),
        ("./pkg", "./pkg is no wheel or source archive"),
        ("-r https://example.com/more.txt", "is read from a URL"),
        ("-r gone.txt", "an include that cannot be used: gone.txt: is not there"),
        ("-r ../outside.txt", "lies outside the checkout"),
    ],
)
def test_what_pip_would_not_check_by_hash_is_named_with_its_line(line: str, fault: str, tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    (tmp_path / "outside.txt").write_text("idna==3.10\n")
    lock = read(checkout, f"# pinned\nidna==3.10 --hash={A}\n{line}\n")
    assert len(lock.faults) == 1 and lock.faults[0].startswith("requirements.txt:3: ") and fault in lock.faults[0]
    assert [pin.version for pin in lock.pins if pin.name == "idna"] == ["3.10"]


@pytest.mark.parametrize(
    ("text", "name", "version"),
    [
        (f"torch==2.13.0+cpu --hash={A}", "torch", "2.13.0+cpu"),
        (f"Torch_Geometric[full]==2.6 ; sys_platform == 'linux' --hash={A}", "torch-geometric", "2.6"),
        (f"torch===2.13.0 \\\n  --hash={A} \\\n  --hash {A}", "torch", "2.13.0"),
        (f"torch==2.13.0 \\\n# why\n  --hash={A}", "torch", "2.13.0"),
        (f"torch==2.13.0 --hash={A}  # the one that works", "torch", "2.13.0"),
        (f"torch==2.13.0 --hash={A} \\", "torch", "2.13.0"),
        (f"torch @ https://download.pytorch.org/whl/cpu/torch-2.13.0%2Bcpu-cp311-cp311-linux_x86_64.whl --hash={A}", "torch", "2.13.0+cpu"),
        (f"https://example.com/torch-2.13.0.tar.gz#sha256={'a' * 64}", "torch", "2.13.0"),
        (f"./wheels/torch-2.13.0-py3-none-any.whl --hash={A}", "torch", "2.13.0"),
        (f"torch @ https://example.com/archive/main.zip --hash={A}", "torch", None),
    ],
)
def test_what_pip_checks_by_hash_is_pinned(text: str, name: str, version: str | None, tmp_path: Path) -> None:
    lock = read(tmp_path, f"--require-hashes\n-i https://example.com/simple\n{text}\n")
    pins = [(pin.name, pin.version, pin.open) for pin in lock.pins]
    if "# why" in text:  # pip ends the line at the comment, so the hash is lost: it reads `--hash=…` as an option of the file
        assert lock.faults == ("requirements.txt:3: torch: no hash",)
    else:
        assert lock.faults == ()
    assert pins == [(name, version, False)]


def test_included_files_are_read_once_and_named(tmp_path: Path) -> None:
    lock = read(
        tmp_path, f"-r more.txt\n--requirement=more.txt\n-c limits.txt\nidna==3.10 --hash={A}\n", more="-rrequirements.txt\nsix==1.17.0\n"
    )
    assert lock.files == ("requirements.txt", "more.txt")
    assert lock.faults == ("more.txt:2: six: no hash",)
    assert {pin.name for pin in lock.pins} == {"idna", "six"}


def test_a_chain_of_includes_ends(tmp_path: Path) -> None:
    for number in range(MAX_FILES + 5):
        (tmp_path / f"r{number}.txt").write_text(f"-r r{number + 1}.txt\n")
    lock = read(tmp_path, f"idna==3.10 --hash={A}\n-r r0.txt\n")
    assert len(lock.faults) == 1 and f"more than {MAX_FILES} files" in lock.faults[0]


@pytest.mark.parametrize("text", ["import torch\n", '{"a": 1}\n', "[package]\n", "x" * 10_000 + "!\n", " " * 200_000 + "?\n"])
def test_what_is_no_requirements_file_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(LockfileError, match=r"^requirements.txt:1: .*is no requirement"):
        read(tmp_path, text)


def test_long_runs_of_blanks_cost_no_time(tmp_path: Path) -> None:
    """Patterns that look again at every blank would take minutes here."""
    assert read(tmp_path, f"idna==3.10{' ' * 1_000_000}--hash={A}\n").faults == ()
