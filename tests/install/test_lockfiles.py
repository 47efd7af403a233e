"""Every format of lock: what a real file pins, what a damaged one leaves open, what is no lock."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import pytest

from repro_gate.install import lockfiles
from repro_gate.install.lockfiles import (
    MAX_BYTES,
    MAX_PACKAGES,
    Lock,
    LockfileError,
    kind_of,
    read_lock,
    same_version,
)
from tests.support.lockfiles import ALL, IDNA, PROJECT, PYLOCK, UV

A = f"sha256:{'a' * 64}"
CANNOT = "`uv export --frozen` cannot read it with the pyproject.toml next to it"


def read(folder: Path, name: str, text: str, *, everything: bool = True) -> Lock:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.with_name("pyproject.toml").write_text(PROJECT)
    return read_lock(path, folder, everything=everything)


@pytest.mark.parametrize("name", ALL)
def test_a_lock_pins_everything(name: str, tmp_path: Path) -> None:
    lock = read(tmp_path, name, ALL[name])
    assert (lock.faults, lock.path) == ((), name)
    pins = {pin.name: pin for pin in lock.pins if pin.name}
    # the checkout's own code is no entry
    windows = {"colorama"} if name != "requirements.txt" else set()
    assert pins.keys() == {"idna", "six", *windows}
    assert all(pins[package].marker == 'sys_platform == "win32"' for package in windows)
    assert pins["idna"].version == "3.10"
    # only requirements have lines
    assert pins["idna"].place == (f"{name}:9" if name == "requirements.txt" else name)
    assert all(f"--hash=sha256:{digest}" in pins["idna"].requirement for digest in IDNA)
    # a repository is pinned by its commit, and is not installed
    assert bool(pins["six"].requirement) is (name == "requirements.txt")


@pytest.mark.parametrize("name", ["requirements.txt", "pylock.toml"])
def test_a_weak_hash_is_named(name: str, tmp_path: Path) -> None:
    (fault,) = read(tmp_path, name, ALL[name].replace(IDNA[1], "946d195a")).faults
    assert ": idna: " in fault and "is not a digest" in fault


LIB = """
[[package]]
name = "lib"
version = "1.0"
source = {{ {} }}
"""


def with_lib(source: str) -> str:
    """A uv.lock whose last entry is a dependency from this source."""
    return UV.replace('{ name = "six" },', '{ name = "six" }, { name = "lib" },') + LIB.format(
        source
    )


@pytest.mark.parametrize(
    ("name", "text", "fault"),
    [
        ("uv.lock", with_lib('editable = "../other"'), "its folder lies outside"),
        ("uv.lock", with_lib('directory = "../other"'), "its folder lies outside"),
        ("pylock.toml", PYLOCK.replace('path = "."', 'path = "../other"'), "lies outside"),
        (
            "pylock.toml",
            PYLOCK.replace('commit-id = "0123', 'commit-id = "main0123'),
            "at no commit",
        ),
    ],
)
def test_what_a_lock_leaves_open_is_told(name: str, text: str, fault: str, tmp_path: Path) -> None:
    (found,) = read(tmp_path, name, text).faults
    assert found.startswith(f"{name}: ") and fault in found
    if "other" in text:  # relative to the lock
        assert read(tmp_path, f"train/{name}", text).faults == ()


def test_an_archive_in_the_checkout_is_pinned_by_its_hash(tmp_path: Path) -> None:
    files = f'wheels = [{{ filename = "lib-1.0-py3-none-any.whl", hash = "{A}" }}]\n'
    text = with_lib('path = "wheels/lib-1.0-py3-none-any.whl"') + files
    pins = {pin.name: pin for pin in read(tmp_path, "uv.lock", text).pins}
    assert pins["lib"].requirement == f"lib==1.0 --hash={A}"


def test_an_archive_at_a_url_is_pinned_by_its_hash(tmp_path: Path) -> None:
    url = "https://example.org/lib-1.0-py3-none-any.whl"
    text = with_lib(f'url = "{url}"') + f'wheels = [{{ url = "{url}", hash = "{A}" }}]\n'
    pins = {pin.name: pin for pin in read(tmp_path, "uv.lock", text).pins}
    assert not pins["lib"].fault
    assert pins["lib"].requirement == f"lib @ {url} --hash={A}"


INDEX = 'registry = "https://pypi.org/simple"'
FILE = f'sdist = {{ url = "https://example.org/lib.zip", hash = "{A}" }}\n'
EXTRAS = f"""
[package.optional-dependencies]
cpu = [{{ name = "lib", version = "1.0", source = {{ {INDEX} }} }}]
gpu = [{{ name = "lib", version = "2.0", source = {{ {INDEX} }} }}]
"""


def test_every_extra_counts_for_what_is_imported_and_none_is_installed(tmp_path: Path) -> None:
    """As the extras of a project with torch for CPU and for CUDA, which exclude each other."""
    one, other = (f'{{ package = "small-training", extra = "{name}" }}' for name in ("cpu", "gpu"))
    libs = "".join(LIB.format(INDEX).replace("1.0", n) + FILE for n in ("1.0", "2.0"))
    text = f"conflicts = [[{one}, {other}]]\n{UV}{EXTRAS}{libs}"
    versions = [pin.version for pin in read(tmp_path, "uv.lock", text).pins if pin.name == "lib"]
    assert sorted(map(str, versions)) == ["1.0", "2.0"]
    installed = read(tmp_path, "uv.lock", text, everything=False)
    assert {pin.name for pin in installed.pins} == {"colorama", "idna", "six"}


def test_a_project_file_leads_uv_nowhere_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not to what only the gate may read, and not to what is waited for."""
    pins = read(tmp_path / "checkout", "uv.lock", UV).pins
    for name in ("secret", "pipe"):
        (tmp_path / name).mkdir()
    (tmp_path / "secret/pyproject.toml").write_text("not TOML [\n")
    os.mkfifo(tmp_path / "pipe/pyproject.toml")
    monkeypatch.setattr(lockfiles, "_SECONDS", 10)
    for name in ("secret", "pipe"):
        members = f"[tool.uv.workspace]\nmembers = ['{tmp_path / name}']\n"
        (tmp_path / "checkout/pyproject.toml").write_text(PROJECT + members)
        assert read_lock(tmp_path / "checkout/uv.lock", tmp_path / "checkout").pins == pins


def test_what_uv_reads_ends_in_time_and_what_it_prints_is_not_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "uv").write_text("#!/bin/sh\necho words of somebody >&2\nexec /bin/sleep 60\n")
    (tmp_path / "uv").chmod(0o755)
    monkeypatch.setattr(lockfiles, "find_uv_bin", lambda: str(tmp_path / "uv"))
    monkeypatch.setattr(lockfiles, "_SECONDS", 0.5)
    with pytest.raises(LockfileError, match=CANNOT) as caught:
        read(tmp_path, "uv.lock", UV)
    assert "words" not in str(caught.value)

    def missing() -> str:
        raise FileNotFoundError("no uv")

    monkeypatch.setattr(lockfiles, "find_uv_bin", missing)
    with pytest.raises(LockfileError, match=r"^uv.lock: is read by uv, `pip install uv`: no uv"):
        read(tmp_path, "uv.lock", UV)


def test_a_project_file_above_the_temporary_folder_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "temporary").mkdir()
    (tmp_path / "temporary/pyproject.toml").write_text("not TOML [\n")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    assert read(tmp_path / "checkout", "uv.lock", UV).pins


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
        ("x @ git+https://example.com/x.git@main", "is a path, or a repository at no commit"),
        ("x @ file:///x-1.0-py3-none-any.whl --hash=" + A, "is a path, or a repository"),
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
        (f"torch==2.13.0 --hash={A}  # \\", "torch", "2.13.0"),
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


HEAD = 'lock-version = "1.0"\ncreated-by = "a test"\n[[packages]]\n'
WHEELS = f'version = "1"\nwheels = [{{ url = "x-1-py3-none-any.whl", hashes = {{ sha256 = "{A[7:]}" }} }}]'
NO_LOCKS = ("", "\0", "[" * 100_000, "(" * 3_900)
KEYS = "a" + ".a" * 10_000 + " = 1\n"
NO_REQUIREMENTS = ("-rmore.txt", "--requirement=more.txt", "import torch", "a==1; " + "(" * 3_900)
OTHERS = ("environment.yml", "Pipfile.lock", "poetry.lock", "setup.py")
WRITE = "`uv pip compile"
UV_REFUSES = (
    "[[package]]\nname = 3\n",
    KEYS,
    '[[package]]\nname = "six"\nversion = "1.17.0"\n',  # without a source
    UV.replace("#0123", "#main-0123"),
    UV.replace(IDNA[1], "946d195a"),
)
REFUSED = [  # name, text, what is said
    *((name, text, f"^{name}[:0-9]*: ") for name in ALL for text in NO_LOCKS),
    *(("uv.lock", text, f"^uv.lock: {CANNOT}") for text in UV_REFUSES),
    *(
        ("a.lock", f"six\n{line}\n", f"^a.lock:2: .*: write it with {WRITE}")
        for line in NO_REQUIREMENTS
    ),
    *((name, "a: b\n", f"^{name}: is no requirements, .*{WRITE}") for name in OTHERS),
    ("pylock.toml", "[[packages]]\nname = 3\n", "^pylock.toml: is not pylock.toml: .*lock-version"),
    ("pylock.toml", KEYS, "takes more time or memory to parse"),
    ("pylock.toml", HEAD.replace("1.0", "2.0") + f'name = "x"\n{WHEELS}', "2.0 is not supported"),
    # names that uv would take for an option
    ("pylock.toml", f'{HEAD}name = "x\\n-e /y"\n{WHEELS}', "is not normalized"),
    ("pylock.toml", f'{HEAD}name = "x --hash"\n{WHEELS}', "is not normalized"),
    ("a.lock", "-i x\n" * (MAX_PACKAGES + 1), f"more than {MAX_PACKAGES}"),
]


@pytest.mark.parametrize(("name", "text", "said"), REFUSED, ids=map(str, range(len(REFUSED))))
def test_what_is_no_lock_is_refused_with_its_name(
    name: str, text: str, said: str, tmp_path: Path
) -> None:
    with pytest.raises(LockfileError, match=said):
        read(tmp_path, name, text)


def test_a_wheel_of_more_tags_than_fit_into_memory_is_refused(tmp_path: Path) -> None:
    many = ".".join(f"a{number}" for number in range(1000))
    text = f"{HEAD}name = 'x'\n{WHEELS}".replace("py3-none-any", f"{many}-{many}-{many}")
    with pytest.raises(LockfileError, match=r"^pylock\.toml: ") as caught:
        read(tmp_path, "pylock.toml", text)
    assert len(str(caught.value)) < 600


def test_a_folder_with_a_name_longer_than_a_path_is_refused(tmp_path: Path) -> None:
    text = PYLOCK.replace('path = "."', f'path = "{"/a-b-" * 200_000}"')
    with pytest.raises(LockfileError, match="is no requirement"):
        read(tmp_path, "pylock.toml", text)


def test_lines_that_join_or_say_nothing_cost_no_time(tmp_path: Path) -> None:
    began = time.process_time()
    for text in ("\n" * 100_000, "\\\n" * 100_000, "a" + " " * 100_000 + "?\n"):
        with pytest.raises(LockfileError):
            read(tmp_path, "a.lock", text)
    assert time.process_time() - began < 2


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
