"""What single formats have of their own: older layouts, folders, extras, platforms."""

from __future__ import annotations

from pathlib import Path

import pytest

from repro_gate.install.lockfiles import read_lock
from repro_gate.install.lockfiles.model import Lock, LockfileError
from tests.support.lockfiles import CONDA, IDNA, OLD_POETRY, PDM, PIPFILE, POETRY, PYLOCK, SIX, UV


def read(folder: Path, name: str, text: str) -> Lock:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return read_lock(path, folder)


def test_poetry_kept_its_hashes_apart_once(tmp_path: Path) -> None:
    assert read(tmp_path, "poetry.lock", OLD_POETRY).faults == ("poetry.lock:9: six: no hash",)


def test_pdm_kept_its_hashes_apart_once(tmp_path: Path) -> None:
    old = (
        '[[package]]\nname = "six"\nversion = "1.17.0"\n\n[metadata]\nlock_version = "4.1"\n\n'
        f'[metadata.files]\n"six 1.17.0" = [{{url = "https://x/six.whl", hash = "sha256:{SIX[0]}"}}]\n'
    )
    assert read(tmp_path, "pdm.lock", old).faults == ()
    assert read(tmp_path, "pdm.lock", old.replace("six 1.17.0", "six 1.0")).faults == ("pdm.lock:1: six: no hash",)


def test_an_extra_of_pdm_needs_no_files_of_its_own(tmp_path: Path) -> None:
    assert [pin.name for pin in read(tmp_path, "pdm.lock", PDM).pins] == ["colorama", "idna", "six"]
    alone = PDM.replace(f'"sha256:{IDNA[0]}"}}', '""}').replace(f'"sha256:{IDNA[1]}"}}', '""}')
    assert read(tmp_path, "pdm.lock", alone).faults == ("pdm.lock:24: idna: a file of it has no hash",)


@pytest.mark.parametrize(
    ("name", "text", "here", "outside"),
    [
        ("uv.lock", UV, 'editable = "."', 'editable = "../other"'),
        ("pylock.toml", PYLOCK, 'path = "."', 'path = "../other"'),
        ("pdm.lock", PDM + '\n[[package]]\nname = "small-training"\nversion = "0.1.0"\npath = "."\n', 'path = "."', 'path = "../other"'),
        (
            "poetry.lock",
            POETRY + '\n[[package]]\nname = "small-training"\nversion = "0.1.0"\n[package.source]\ntype = "directory"\nurl = "."\n',
            'url = "."',
            'url = "../other"',
        ),
        ("Pipfile.lock", PIPFILE.replace('"six": {', '"small-training": {"path": ".", "editable": true}, "six": {'), '"."', '"../other"'),
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


def test_a_folder_is_relative_to_the_lock(tmp_path: Path) -> None:
    text = UV.replace('editable = "."', 'editable = "../shared"')
    assert read(tmp_path, "train/uv.lock", text).faults == ()


def test_markers_are_kept(tmp_path: Path) -> None:
    for name, text in (("poetry.lock", POETRY), ("pdm.lock", PDM), ("pylock.toml", PYLOCK)):
        pin = next(pin for pin in read(tmp_path, name, text).pins if pin.name == "colorama")
        assert pin.marker.replace('"', "'") == "sys_platform == 'win32'"


def test_a_later_layout_of_pylock_and_conda_lock_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LockfileError, match=r"pylock.toml: its lock-version is '2.0'"):
        read(tmp_path, "pylock.toml", PYLOCK.replace('lock-version = "1.0"', 'lock-version = "2.0"'))
    with pytest.raises(LockfileError, match=r"conda-lock.yml:2: its version is 2"):
        read(tmp_path, "conda-lock.yml", CONDA.replace("version: 1\n", "version: 2\n"))


def test_a_package_without_a_name_or_of_the_wrong_type_is_a_fault(tmp_path: Path) -> None:
    lock = read(tmp_path, "uv.lock", UV.replace('name = "idna"\nversion', "name = 3\nversion").replace("wheels = [\n", "wheels = [3,\n"))
    assert "uv.lock:13: a package without a name" in lock.faults
    assert "uv.lock:5: colorama: a file of it has no hash" in lock.faults
    with pytest.raises(LockfileError, match="`package` is not a list of tables"):
        read(tmp_path, "uv.lock", "package = [1]\n")


def test_conda_names_are_those_of_python_where_they_are_known(tmp_path: Path) -> None:
    lock = read(tmp_path, "conda-lock.yml", CONDA)
    assert lock.conda and [(pin.name, pin.version) for pin in lock.pins] == [("torch", "2.13.0"), ("idna", "3.10")]
    only_md5 = read(tmp_path, "conda-lock.yml", CONDA.replace(f"    sha256: {SIX[0]}\n", ""))
    assert only_md5.faults == ("conda-lock.yml:14: torch: md5:d7c89558ba9fa0495403155b64376d81 is not a digest that pins a file",)


def test_a_header_inside_a_text_moves_no_line(tmp_path: Path) -> None:
    """Where the headers do not add up the place is the file, never another line."""
    lock = read(tmp_path, "uv.lock", 'note = """\n[[package]]\n"""\n' + UV)
    assert {pin.place for pin in lock.pins} == {"uv.lock"}
