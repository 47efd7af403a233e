"""Every format: what a real file pins, what a damaged one leaves open, and that what is no lock is
refused in a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from repro_gate.install.lockfiles import KINDS, Lock, kind_of, read_lock, same_version, strong
from repro_gate.install.requirements import MAX_BYTES, MAX_FILES, LockfileError
from tests.support.lockfiles import ALL, COMMIT, IDNA, OLD_POETRY, PDM, POETRY, PYLOCK, UV

A = f"sha256:{'a' * 64}"


def read(folder: Path, name: str, text: str) -> Lock:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return read_lock(path, folder)


def read_requirements(folder: Path, text: str, **others: str) -> Lock:
    for name, content in {"requirements": text, **others}.items():
        (folder / f"{name}.txt").write_text(content)
    return read_lock(folder / "requirements.txt", folder)


@pytest.mark.parametrize("name", ALL)
def test_a_lock_as_its_tool_writes_it_pins_everything_and_a_file_without_its_hash_is_named_with_its_line(
    name: str, tmp_path: Path
) -> None:
    lock = read(tmp_path, name, ALL[name])
    assert lock.faults == () and lock.files == (name,)
    idna = next(pin for pin in lock.pins if pin.name == "idna")
    line = next(
        number
        for number, text in enumerate(ALL[name].split("\n"), 1)
        if "idna" in text and "autogen" not in text
    )
    assert idna.version == "3.10" and not idna.open
    assert idna.place in (f"{name}:{line}", f"{name}:{line - 1}")
    markers = [pin.marker.replace('"', "'") for pin in lock.pins if pin.name == "colorama"]
    assert markers == (
        []
        if name == "requirements.txt"
        else [""]
        if name == "uv.lock"
        else ["sys_platform == 'win32'"]
    )
    (fault,) = read(tmp_path, name, ALL[name].replace(IDNA[1], "946d195a")).faults
    weak = f"md5:{'0' * 32}" if name == "pylock.toml" else "sha256:946d195a"
    assert (
        fault.startswith(f"{name}:") and f": idna: {weak} is not a digest that pins a file" in fault
    )


@pytest.mark.parametrize("name", ["uv.lock", "poetry.lock", "pdm.lock", "pylock.toml"])
def test_a_repository_is_pinned_by_its_commit_alone(name: str, tmp_path: Path) -> None:
    assert (
        next(pin for pin in read(tmp_path, name, ALL[name]).pins if pin.name == "six").open is False
    )
    lock = read(tmp_path, name, ALL[name].replace(COMMIT, "main"))
    assert [fault.partition(": ")[2] for fault in lock.faults] == ["six: a repository at no commit"]


NO_LOCKS = [
    "",
    "\0",
    "[[package]\n",
    "{",
    "\t- a: [",
    "[" * 100_000,
    '{"a":' * 50_000,
    "package = 1\npackages = 1\n",
    "- " * 5_000 + "x",
]


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("text", [*NO_LOCKS, "=" * 50_000], ids=range(10))
def test_what_is_no_lock_is_refused_with_its_name(name: str, text: str, tmp_path: Path) -> None:
    with pytest.raises(LockfileError, match=f"^{name.replace('.', '[.]')}[:0-9]*: "):
        read(tmp_path, name, text)


def test_bytes_size_kind_and_place_of_a_file_are_checked_before_it_is_read(tmp_path: Path) -> None:
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
    with pytest.raises(
        LockfileError,
        match=r"^uv.lock: takes more time or memory to parse than 20,006 characters of TOML may",
    ):
        read(inside / "deep", "uv.lock", "a" + ".a" * 10_000 + " = 1\n")


def test_the_kind_follows_from_the_name_and_one_that_no_format_has_is_refused(
    tmp_path: Path,
) -> None:
    for name, kind in (
        ("requirements.lock", "requirements"),
        ("requirements-train.txt", "requirements"),
        ("pylock.train.toml", "pylock.toml"),
    ):
        assert kind_of(name) == kind
    for name in (
        "environment.yml",
        "gpu.conda-lock.yml",
        "Pipfile.lock",
        "pyproject.toml",
        "setup.py",
    ):
        assert kind_of(name) is None
        with pytest.raises(
            LockfileError, match=f"^{name}: is not a lockfile that the gate reads"
        ) as refused:
            read(tmp_path, name, "dependencies: [python]\n")
        assert KINDS in str(refused.value)


def test_only_a_whole_digest_that_cannot_be_forged_pins() -> None:
    for digest in (f"sha256:{'a' * 64}", f"SHA256:{'A' * 64}", f"sha512:{'a' * 128}"):
        assert strong(digest)
    for digest in (
        f"sha256:{'a' * 63}",
        f"sha256:{'g' * 64}",
        f"md5:{'a' * 32}",
        f"sha1:{'a' * 40}",
        "a" * 64,
        "",
    ):
        assert not strong(digest)


@pytest.mark.parametrize(
    ("locked", "installed", "same"),
    [
        ("2.13", "2.13.0", True),
        ("2.13.0", "2.13.1", False),
        ("2.13.0", "2.13.0+cpu", True),  # the local label counts if the locked version has one
        ("2.13.0+cpu", "2.13.0+cpu", True),
        ("2.13.0+cpu", "2.13.0+cu128", False),
        ("2.13.0+cpu", "2.13.0", False),
        ("Odd One", "odd one ", True),
    ],
)
def test_versions_are_the_same_release_with_the_label_that_the_lock_has(
    locked: str, installed: str, same: bool
) -> None:
    assert same_version(locked, installed) is same


def test_hashes_that_an_old_tool_kept_apart_are_not_read(tmp_path: Path) -> None:
    """poetry 1 and pdm 2.7 kept all hashes in one table at the end; newer ones write them anew."""
    assert read(tmp_path, "poetry.lock", OLD_POETRY).faults[-1] == "poetry.lock:5: six: no hash"


def test_an_extra_of_pdm_needs_no_files_of_its_own(tmp_path: Path) -> None:
    assert [pin.name for pin in read(tmp_path, "pdm.lock", PDM).pins] == ["colorama", "idna", "six"]
    alone = PDM.replace(f'"sha256:{IDNA[0]}"}}', '""}').replace(f'"sha256:{IDNA[1]}"}}', '""}')
    assert read(tmp_path, "pdm.lock", alone).faults == (
        "pdm.lock:17: idna: a file of it has no hash",
    )


@pytest.mark.parametrize(
    ("name", "text", "here", "outside"),
    [
        ("uv.lock", UV, 'editable = "."', 'editable = "../other"'),
        ("pylock.toml", PYLOCK, 'path = "."', 'path = "../other"'),
        (
            "pdm.lock",
            PDM + '\n[[package]]\nname = "small-training"\nversion = "0.1.0"\npath = "."\n',
            'path = "."',
            'path = "../other"',
        ),
        (
            "poetry.lock",
            POETRY + '\n[[package]]\nname = "small-training"\nversion = '
            '"0.1.0"\n[package.source]\ntype = "directory"\nurl = "."\n',
            'url = "."',
            'url = "../other"',
        ),
    ],
)
def test_a_folder_of_the_checkout_is_its_own_code_and_another_is_not_pinned(
    name: str, text: str, here: str, outside: str, tmp_path: Path
) -> None:
    lock = read(tmp_path, name, text)
    assert lock.own == {"small-training"} and lock.faults == ()
    assert "small-training" not in {pin.name for pin in lock.pins}
    faults = read(tmp_path, name, text.replace(here, outside)).faults
    assert len(faults) == 1 and "small-training: its folder lies outside the checkout" in faults[0]
    # relative to the lock
    assert read(tmp_path, f"train/{name}", text.replace(here, outside)).faults == ()


def test_a_later_layout_and_a_package_without_a_name_or_of_the_wrong_type_are_faults(
    tmp_path: Path,
) -> None:
    with pytest.raises(LockfileError, match=r"pylock.toml: .*2.0.*PEP 751"):
        read(
            tmp_path, "pylock.toml", PYLOCK.replace('lock-version = "1.0"', 'lock-version = "2.0"')
        )
    lock = read(
        tmp_path,
        "uv.lock",
        UV.replace('name = "idna"\nversion', "name = 3\nversion").replace(
            "wheels = [\n", "wheels = [3,\n"
        ),
    )
    assert "uv.lock:12: a package without a name" in lock.faults
    assert "uv.lock:4: colorama: a file of it has no hash" in lock.faults
    with pytest.raises(LockfileError, match="`package` is not a list of tables"):
        read(tmp_path, "uv.lock", "package = [1]\n")


def test_a_header_inside_a_text_moves_no_line(tmp_path: Path) -> None:
    """Where the headers do not add up the place is the file, never another line."""
    lock = read(tmp_path, "uv.lock", 'note = """\n[[package]]\n"""\n' + UV)
    assert {pin.place for pin in lock.pins} == {"uv.lock"}


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("torch==2.13.0", "torch: no hash"),
        ("torch>=2", "torch: `>=2` is no one version"),
        (f"torch==2.* --hash={A}", "torch: `==2.*` is no one version"),
        (f"torch==2.13.0 --hash=md5:{'a' * 32}", "torch: md5:"),
        (f"torch==2.13.0 --hash={A[:-1]}", "is not a digest that pins a file"),
        ("-e .", ". is editable"),
        (
            "x @ git+https://example.com/x.git@main",
            "x: git+https://example.com/x.git@main is a repository",
        ),
        ("git+https://example.com/x.git@main#egg=x", "has no name: write `NAME @ URL`"),
        ("x @ https://example.com/x-1.0-py3-none-any.whl", "x: no hash"),
        (
            "./wheels/x-1.0-py3-none-any.whl",
            "./wheels/x-1.0-py3-none-any.whl has no name: write `NAME @ URL`",
        ),
        ("-r https://example.com/more.txt", "is read from a URL"),
        ("-r gone.txt", "an include that cannot be used: gone.txt: is not there"),
        ("-r ../outside.txt", "lies outside the checkout"),
    ],
)
def test_what_pip_would_not_check_by_hash_is_named_with_its_line(
    line: str, fault: str, tmp_path: Path
) -> None:
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    (tmp_path / "outside.txt").write_text("idna==3.10\n")
    lock = read_requirements(checkout, f"# pinned\nidna==3.10 --hash={A}\n{line}\n")
    assert (
        len(lock.faults) == 1
        and lock.faults[0].startswith("requirements.txt:3: ")
        and fault in lock.faults[0]
    )
    assert [pin.version for pin in lock.pins if pin.name == "idna"] == ["3.10"]


@pytest.mark.parametrize(
    ("text", "name", "version"),
    [
        (f"torch==2.13.0+cpu --hash={A}", "torch", "2.13.0+cpu"),
        (
            f"Torch_Geometric[full]==2.6 ; sys_platform == 'linux' --hash={A}",
            "torch-geometric",
            "2.6",
        ),
        (f"torch===2.13.0 \\\n  --hash={A} \\\n  --hash {A}", "torch", "2.13.0"),
        (f"torch==2.13.0 \\\n# why\n  --hash={A}", "torch", "2.13.0"),
        (f"torch==2.13.0 --hash={A}  # the one that works", "torch", "2.13.0"),
        (f"torch==2.13.0 --hash={A} \\", "torch", "2.13.0"),
        # a pattern that looks again at every blank would take minutes
        (
            f"torch==2.13.0{' ' * 1_000_000}--hash={A}",
            "torch",
            "2.13.0",
        ),
        (
            (
                "torch @ "
                "https://download.pytorch.org/whl/cpu/torch-2.13.0%2Bcpu-cp311-cp311-linux_x86_64.whl "
                f"--hash={A}"
            ),
            "torch",
            "2.13.0+cpu",
        ),
        (f"torch @ https://example.com/torch-2.13.0.tar.gz#sha256={'a' * 64}", "torch", "2.13.0"),
        (f"torch @ https://example.com/archive/main.zip --hash={A}", "torch", None),
    ],
)
def test_what_pip_checks_by_hash_is_pinned(
    text: str, name: str, version: str | None, tmp_path: Path
) -> None:
    lock = read_requirements(tmp_path, f"--require-hashes\n-i https://example.com/simple\n{text}\n")
    # pip ends a line at a comment, so the hash below it is lost: it reads `--hash=…` as an option
    # of the file
    assert lock.faults == (("requirements.txt:3: torch: no hash",) if "# why" in text else ())
    assert [(pin.name, pin.version, pin.open) for pin in lock.pins] == [(name, version, False)]


def test_included_files_are_read_once_and_named_and_a_chain_of_them_ends(tmp_path: Path) -> None:
    text = f"-r more.txt\n--requirement=more.txt\n-c limits.txt\nidna==3.10 --hash={A}\n"
    lock = read_requirements(tmp_path, text, more="-rrequirements.txt\nsix==1.17.0\n")
    assert lock.files == ("requirements.txt", "more.txt") and lock.faults == (
        "more.txt:2: six: no hash",
    )
    assert {pin.name for pin in lock.pins} == {"idna", "six"}
    chain = {f"r{number}": f"-r r{number + 1}.txt\n" for number in range(MAX_FILES + 5)}
    lock = read_requirements(tmp_path, f"idna==3.10 --hash={A}\n-r r0.txt\n", **chain)
    assert len(lock.faults) == 1 and f"more than {MAX_FILES} files" in lock.faults[0]


@pytest.mark.parametrize(
    "text",
    [
        "import torch\n",
        '{"a": 1}\n',
        "[package]\n",
        "x" * 10_000 + "!\n",
        " " * 200_000 + "?\n",
        "a==1; " + "(" * 3_900,
    ],
)
def test_what_is_no_requirements_file_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(LockfileError, match=r"^requirements.txt:1: .*is no requirement"):
        read_requirements(tmp_path, text)
