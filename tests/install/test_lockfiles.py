"""Every format of lock: what a real file pins, what a damaged one leaves open, what is no lock."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from repro_gate.install.lockfiles import (
    MAX_BYTES,
    MAX_PACKAGES,
    Lock,
    LockfileError,
    kind_of,
    read_lock,
    same_version,
)
from tests.support.lockfiles import ALL, IDNA, PYLOCK, UV

A = f"sha256:{'a' * 64}"


def read(folder: Path, name: str, text: str) -> Lock:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return read_lock(path, folder)


@pytest.mark.parametrize("name", ALL)
def test_a_lock_pins_everything_and_a_weak_hash_is_named(name: str, tmp_path: Path) -> None:
    lock = read(tmp_path, name, ALL[name])
    assert (lock.faults, lock.path) == ((), name)
    pins = {pin.name: pin for pin in lock.pins}
    line = next(
        number
        for number, text in enumerate(ALL[name].split("\n"), 1)
        if text in ('name = "idna"', "idna==3.10 \\")
    )
    assert pins["idna"].version == "3.10"
    assert pins["idna"].place in (f"{name}:{line}", f"{name}:{line - 1}")
    assert all(f"--hash=sha256:{digest}" in pins["idna"].requirement for digest in IDNA)
    marker = pins["colorama"].marker if "colorama" in pins else None
    assert marker == {"pylock.toml": 'sys_platform == "win32"', "uv.lock": ""}.get(name)
    # a repository is pinned by its commit, and is not installed
    assert bool(pins["six"].requirement) is (name == "requirements.txt")
    assert {pin.name for pin in lock.pins if pin.own} == (
        set() if name == "requirements.txt" else {"small-training"}
    )
    (fault,) = read(tmp_path, name, ALL[name].replace(IDNA[1], "946d195a")).faults
    assert fault.startswith(f"{pins['idna'].place}: idna: ") and "is not a digest" in fault


@pytest.mark.parametrize(
    ("name", "text", "fault"),
    [
        ("uv.lock", UV.replace('editable = "."', 'editable = "../other"'), "lies outside"),
        ("pylock.toml", PYLOCK.replace('path = "."', 'path = "../other"'), "lies outside"),
        ("uv.lock", UV.replace("#0123", "#main-0123"), "at no commit"),
        (
            "pylock.toml",
            PYLOCK.replace('commit-id = "0123', 'commit-id = "main0123'),
            "at no commit",
        ),
        ("uv.lock", UV.replace(f', hash = "sha256:{IDNA[1]}"', ""), "none is not a digest"),
        ("uv.lock", '[[package]]\nname = "six"\nversion = "1.17.0"\n', "six: no hash"),
    ],
)
def test_what_a_lock_leaves_open_is_told(name: str, text: str, fault: str, tmp_path: Path) -> None:
    (found,) = read(tmp_path, name, text).faults
    assert found.startswith(f"{name}:") and fault in found
    if "other" in text:  # relative to the lock
        assert read(tmp_path, f"train/{name}", text).faults == ()


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("torch==2.13.0", "torch: no hash"),
        ("torch", "torch: `any version` is no one version"),
        (f"torch==2.* --hash={A}", "torch: `==2.*` is no one version"),
        (f"torch==2.13.0 --hash=md5:{'a' * 32}", "torch: md5:"),
        (f"torch==2.13.0 --hash={A[:-1]}", "is not a digest that pins a file"),
        ("torch==2.13.0 \\\n# why\n  --hash=" + A, "torch: no hash"),  # pip ends it there, too
        ("-e .", "`-e .` has no hash"),
        ("x @ git+https://example.com/x.git@main", "is a path or a repository"),
        ("x @ file:///x-1.0-py3-none-any.whl --hash=" + A, "is a path or a repository"),
        ("x @ https://example.com/x-1.0-py3-none-any.whl", "x: no hash"),
    ],
)
def test_what_no_hash_checks_is_named_with_its_line(line: str, fault: str, tmp_path: Path) -> None:
    lock = read(tmp_path, "requirements.txt", f"# pinned\nidna==3.10 --hash={A}\n{line}\n")
    assert len(lock.faults) == 1 and lock.faults[0].startswith("requirements.txt:3: ")
    assert fault in lock.faults[0]
    assert [pin.name for pin in lock.pins if pin.requirement] == ["idna"]


@pytest.mark.parametrize(
    ("text", "name", "version"),
    [
        (f"torch==2.13.0+cpu --hash={A}", "torch", "2.13.0+cpu"),
        (f"T_G[full]==2.6 ; sys_platform == 'linux' --hash={A}", "t-g", "2.6"),
        (f"torch===2.13.0 \\\n  --hash={A} \\\n  --hash {A}", "torch", "2.13.0"),
        (f"torch==2.13.0 --hash={A} \\", "torch", "2.13.0"),
        # a pattern that looks again at every blank would take minutes
        (f"torch==2.13.0{' ' * 1_000_000}--hash={A}", "torch", "2.13.0"),
        (f"torch @ https://example.com/torch.whl --hash={A}", "torch", None),
    ],
)
def test_what_a_hash_checks_is_pinned_and_installed_by_one_line(
    text: str, name: str, version: str | None, tmp_path: Path
) -> None:
    lock = read(tmp_path, "a.lock", f"--require-hashes\n-i https://example.com/simple\n{text}\n")
    pin = lock.pins[-1]
    assert lock.faults == () and (pin.name, pin.version) == (name, version)
    assert pin.place == "a.lock:3" and f" --hash={A}" in pin.requirement
    assert len(pin.requirement) < 300 and "\n" not in pin.requirement
    assert not any(pin.requirement for pin in lock.pins[:-1])  # options


TOML = ("uv.lock", "pylock.toml")
WHEELS = f'version = "1"\nwheels = [{{ hashes = {{ sha256 = "{A[7:]}" }} }}]'
NO_LOCKS = ("", "\0", "[" * 100_000, "(" * 3_900)
WRONG_KEYS = (
    ("[[package]]\nname = 3\n[[packages]]\nname = 3\n", r"\$.package\[0\].name"),
    ("a" + ".a" * 10_000 + " = 1\n", "takes more time or memory to parse"),
    ('lock-version = "2.0"\n', "lock-version|pins nothing"),
)
NO_REQUIREMENTS = ("-rmore.txt", "--requirement=more.txt", "import torch", "a==1; " + "(" * 3_900)
OTHERS = ("environment.yml", "Pipfile.lock", "poetry.lock", "setup.py")
WRITE = "`uv pip compile"
REFUSED = [  # name, text, what is said
    *((name, text, f"^{name}[:0-9]*: ") for name in ALL for text in NO_LOCKS),
    *((name, text, f"^{name}: .*({said})") for name in TOML for text, said in WRONG_KEYS),
    *(
        ("a.lock", f"six\n{line}\n", f"^a.lock:2: .*: write it with {WRITE}")
        for line in NO_REQUIREMENTS
    ),
    *((name, "a: b\n", f"^{name}: is no requirements, .*{WRITE}") for name in OTHERS),
    ("pylock.toml", f'[[packages]]\nname = "x\\n-e /y"\n{WHEELS}', "is no requirement"),
    ("a.lock", "-i x\n" * (MAX_PACKAGES + 1), f"more than {MAX_PACKAGES}"),
]


@pytest.mark.parametrize(("name", "text", "said"), REFUSED, ids=map(str, range(len(REFUSED))))
def test_what_is_no_lock_is_refused_with_its_name(
    name: str, text: str, said: str, tmp_path: Path
) -> None:
    with pytest.raises(LockfileError, match=said):
        read(tmp_path, name, text)


def test_lines_that_join_or_say_nothing_cost_no_time(tmp_path: Path) -> None:
    began = time.process_time()
    for text in ("\n" * 100_000, "\\\n" * 100_000, "a" + " " * 100_000 + "?\n"):
        with pytest.raises(LockfileError):
            read(tmp_path, "a.lock", text)
    assert time.process_time() - began < 2


def test_a_name_that_uv_would_take_for_an_option_is_no_requirement(tmp_path: Path) -> None:
    for name in ("-e /x", "x --hash"):
        lock = read(tmp_path, "pylock.toml", f'[[packages]]\nname = "{name}"\n{WHEELS}')
        assert [pin.requirement for pin in lock.pins] == [""]


def test_bytes_size_number_and_place_of_a_file_are_bounded(tmp_path: Path) -> None:
    path, inside = tmp_path / "uv.lock", tmp_path / "repo"
    with pytest.raises(LockfileError, match="is not there"):
        read_lock(path, tmp_path)
    for content, message in (
        (b"# \xff\n", r"is not UTF-8 text \(byte 2\)"),
        (bytes(MAX_BYTES + 1), "is larger than"),
    ):
        path.write_bytes(content)
        with pytest.raises(LockfileError, match=message):
            read_lock(path, tmp_path)
    inside.mkdir()
    (inside / "uv.lock").symlink_to("../uv.lock")
    for outside in (inside / "uv.lock", path):
        with pytest.raises(LockfileError, match="lies outside the checkout"):
            read_lock(outside, inside)
    path.unlink()
    path.mkdir()
    with pytest.raises(LockfileError, match="is not a regular file"):
        read_lock(path, tmp_path)


def test_a_header_inside_a_text_moves_no_line(tmp_path: Path) -> None:
    """Where the headers do not add up the place is the file, never another line."""
    lock = read(tmp_path, "uv.lock", 'note = """\n[[package]]\n"""\n' + UV)
    assert {pin.place for pin in lock.pins} == {"uv.lock"}


def test_the_kind_follows_from_the_name() -> None:
    named = {"requirements.lock": "requirements", "poetry-requirements.txt": "requirements"}
    named |= {"uv.lock": "uv", "pylock.train.toml": "pylock"}
    kinds = {**named, **dict.fromkeys(OTHERS)}
    assert {name: kind_of(name) for name in kinds} == kinds


@pytest.mark.parametrize(
    ("locked", "installed", "is_same"),
    [
        ("2.13.0", "2.13.0+cu128", True),
        ("2.13", "2.13.0", True),
        ("2.13.0+cpu", "2.13.0", False),
        ("2.13.0+cpu", "2.13.0+cu128", False),
        ("2.13.0", "2.13.1", False),
        ("No-Version", "no-version", True),
    ],
)
def test_a_label_counts_where_the_lock_has_one(locked: str, installed: str, is_same: bool) -> None:
    assert same_version(locked, installed) is is_same
