"""Files of a checkout are read with care: inside it, regular, bounded, UTF-8."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from repro_gate.files import NotRegular, Unreadable, is_inside, parse_toml, read_start, read_text


def test_text_is_read_and_a_byte_order_mark_dropped(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\xef\xbb\xbfgr\xc3\xbc\xc3\x9fe")
    assert read_text(tmp_path / "a", tmp_path, 100) == "grüße"


def test_a_folder_is_refused_and_leaves_no_descriptor_open(tmp_path: Path) -> None:
    before = os.listdir("/proc/self/fd")
    for _ in range(3):
        with pytest.raises(NotRegular):
            read_start(tmp_path, 10)
    assert os.listdir("/proc/self/fd") == before


def test_what_is_no_file_of_the_checkout_is_refused(tmp_path: Path) -> None:
    inside = tmp_path / "in"
    inside.mkdir()
    (tmp_path / "secret").write_text("s")
    (inside / "link").symlink_to("../secret")
    (inside / "loop").symlink_to("loop")
    (inside / ".git").mkdir()
    (inside / ".git" / "config").write_text("extraheader = secret")
    (inside / "credential").symlink_to(".git/config")
    os.mkfifo(inside / "pipe")
    (inside / "large").write_text("x" * 101)
    (inside / "bytes").write_bytes(b"a\xff")
    for name, said in {
        "link": "lies outside the checkout",
        "../secret": "lies outside the checkout",
        ".git/config": "belongs to git itself",
        "credential": "belongs to git itself",
        "gone": "is not there",
        "pipe": "is not a regular file",
        ".": "is not a regular file",
        "large": "is larger than 100 bytes",
        "bytes": r"is not UTF-8 text \(byte 1\)",
        "loop": "cannot be read",
        "nul\0": "cannot be read",
    }.items():
        with pytest.raises(Unreadable, match=said):
            read_text(inside / name, inside, 100)


def test_a_neighbour_with_the_same_beginning_is_not_inside(tmp_path: Path) -> None:
    (tmp_path / "repo").mkdir()
    (tmp_path / "repo-2").mkdir()
    assert is_inside(tmp_path / "repo" / "x", tmp_path / "repo") and is_inside(tmp_path / "repo", tmp_path / "repo")
    assert not is_inside(tmp_path / "repo-2", tmp_path / "repo")
    assert is_inside(tmp_path, Path("/"))


def test_toml_is_parsed_or_refused_with_its_line() -> None:
    assert parse_toml("a = [1]\n") == {"a": [1]}
    with pytest.raises(Unreadable, match=r"is not TOML: .*line 2"):
        parse_toml("a = 1\nb = \n")
    with pytest.raises(Unreadable, match="is not TOML"):
        parse_toml("a = " + "[" * 100_000)


def test_of_toml_comes_what_json_can_hold() -> None:
    assert parse_toml("a = 1979-05-27\nb.c = inf\n") == {"a": None, "b": {"c": float("inf")}}


@pytest.mark.parametrize(
    "text",
    [
        "a" + ".a" * 20_000 + " = 1\n",
        "[" + "a." * 20_000 + "a]\n" + "".join(f"{number}.x = 1\n" for number in range(4_000)),
        "a = " + "{b = " * 2_000 + "1" + "}" * 2_000,
    ],
    ids=["key", "header", "deep"],
)
def test_toml_that_takes_too_much_is_refused(text: str) -> None:
    with pytest.raises(Unreadable, match=r"takes more time or memory to parse than [0-9,]+ characters of TOML may|nested too deeply"):
        parse_toml(text)


def test_a_large_table_of_toml_is_parsed() -> None:
    text = "".join(
        f'[[package]]\nname = "p{number}"\nfiles = [{{url = "https://example.com/p.whl", hash = "sha256:00"}}]\n' for number in range(5_000)
    )
    assert len(parse_toml(text)["package"]) == 5_000
