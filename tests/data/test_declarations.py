"""Claims about declarations: what `.dvc` files and Croissant metadata stand for, and what is
refused in them."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

from repro_gate.data.declarations import MAX_CROISSANT, MAX_DVC, expand_items
from repro_gate.data.declared import verify_data
from repro_gate.data.formats import DataProblem
from repro_gate.spec.model import DataItem
from tests.support.repositories import write

HUGGING_FACE = (
    "https://github.com/mlcommons/croissant/issues/80"  # what stands there in place of a digest
)
ABC_MD5 = hashlib.md5(b"abc").hexdigest()
ABC_SHA = hashlib.sha256(b"abc").hexdigest()


def expanded(folder: Path, *paths: str) -> tuple[tuple[DataItem, ...], tuple[DataProblem, ...]]:
    return expand_items([DataItem(path) for path in paths], folder)


def croissant(*files: dict[str, Any]) -> str:
    context = {
        "@vocab": "https://schema.org/",
        "cr": "http://mlcommons.org/croissant/",
        "sha256": "cr:sha256",
    }
    dataset = {
        "@context": context,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "distribution": list(files),
    }
    return json.dumps(dataset, indent=1)


def file_object(**fields: Any) -> dict[str, Any]:
    return {"@type": "cr:FileObject", "@id": "one", "name": "one.csv", **fields}


def the_problem(folder: Path, path: str) -> DataProblem:
    (problem,) = expanded(folder, path)[1]
    return problem


def test_a_dvc_file_stands_for_its_outs(tmp_path: Path) -> None:
    write(tmp_path, data__train_dot_bin="abc", data__sub__x="abc")
    (tmp_path / "data/train.bin.dvc").write_text(
        f"outs:\n- md5: {ABC_MD5}\n  size: 3\n  hash: md5\n  path: train.bin\n"
    )
    (tmp_path / "data/more.dvc").write_text(
        f"wdir: sub\nouts:\n- {{path: x, md5: {ABC_MD5}, hash: md5}}\n- {{path: ../train.bin}}\n"
    )
    items, problems = expanded(tmp_path, "data/train.bin.dvc", "./data/more.dvc")
    assert items == (
        DataItem("data/train.bin", None, ABC_MD5, 3, "data/train.bin.dvc:2"),
        DataItem("data/sub/x", None, ABC_MD5, None, "./data/more.dvc:3"),
        DataItem("data/train.bin", None, None, None, "./data/more.dvc:4"),
    )
    assert problems == ()
    assert [finding.matches for finding in verify_data(items, tmp_path)] == [True, True, None]


def test_an_md5_of_digits_alone_is_still_text(tmp_path: Path) -> None:
    for digits in ("1" * 32, "0" * 32, "12345678901234567890123456e00001"):
        (tmp_path / "a.dvc").write_text(f"outs:\n- md5: {digits}\n  path: a\n  hash: md5\n")
        ((item,), problems) = expanded(tmp_path, "a.dvc")
        assert item.md5 == digits and problems == ()


def test_an_item_without_a_digest_takes_it_from_the_dvc_file_beside_it(tmp_path: Path) -> None:
    write(tmp_path, d__a="abc", other="x", other_dot_dvc="outs:\n- path: d\n")
    (tmp_path / "d.dvc").write_text(f"outs:\n- path: d\n  md5: {'1' * 32}.dir\n  hash: md5\n")
    ((item,), problems) = expanded(tmp_path, "d/")
    assert (item, problems) == (DataItem("d/", None, "1" * 32 + ".dir", None, "d.dvc:3"), ())
    assert expand_items([DataItem("d", "a" * 64)], tmp_path) == ((DataItem("d", "a" * 64),), ())
    (items, (problem,)) = expanded(tmp_path, "other")
    assert (
        items == (DataItem("other"),)
        and problem.where == "other.dvc:1"
        and "does not declare other" in problem.message
    )


@pytest.mark.parametrize(
    ("text", "line", "kind", "said"),
    [
        (
            "outs:\n- path: a\n  md5: abc\n  hash: md5\n",
            3,
            "digest",
            "md5 has 3 characters, wanted 32 hex digits: abc",
        ),
        ("outs:\n- path: a\n  md5: " + "g" * 32 + "\n  hash: md5\n", 3, "digest", "no hex digits"),
        (
            "outs:\n- path: a\n  md5: " + "a" * 32 + "\n  hash: sha3\n",
            4,
            "digest",
            "`hash: sha3` is unknown",
        ),
        ("outs:\n- path: a\n  md5: " + "a" * 32 + "\n", 3, "digest", "this md5 is of DVC 2"),
        (
            "outs:\n- path: a\n  hash: md5\n  files: [{relpath: b, md5: c}]\n",
            4,
            "declaration",
            "only `files`",
        ),
        ("outs:\n- path: a\n  etag: " + "a" * 32 + "\n", 3, "declaration", "only `etag`"),
        (
            "outs:\n- path: /etc/passwd\n  md5: " + "a" * 32 + "\n  hash: md5\n",
            3,
            "declaration",
            "leads out of the checkout",
        ),
        ("outs:\n- path: ../../x\n", 2, "declaration", "leads out of the checkout"),
        ("wdir: /etc\nouts:\n- path: passwd\n", 3, "declaration", "leads out of the checkout"),
        ("outs:\n- path: s3://bucket/a\n", 2, "declaration", "is not on this machine"),
        ("outs:\n- md5: " + "a" * 32 + "\n", 2, "declaration", "an out without a path"),
        ("outs: []\n", 1, "declaration", "names no outs"),
        ("deps: [x]\n", 1, "declaration", "names no outs"),
        ("", 1, "declaration", "names no outs"),
        ("outs: [\n", 2, "declaration", "cannot be read"),
        ("outs:\n- !!python/object:os.system {path: a}\n", 2, "declaration", "is not supported"),
        (
            "a: &a [1, 2]\nb: [" + "*a, " * 9000 + "]\n",
            2,
            "declaration",
            "aliases are not supported",
        ),
        ("outs: [" + "1, " * 10_000 + "]\n", 1, "declaration", "more than 10,000 values"),
        ("outs: " + "[" * 5000, 1, "declaration", "nested deeper than"),
    ],
)
def test_a_wrong_dvc_file_is_a_problem_with_its_line(
    tmp_path: Path, text: str, line: int, kind: str, said: str
) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/a.dvc").write_text(text)
    problem = the_problem(tmp_path, "sub/a.dvc")
    assert (problem.where, problem.kind) == (f"sub/a.dvc:{line}", kind)
    assert said in problem.message and problem.remedy


def test_the_checkout_is_the_bound_not_the_folder_of_the_spec(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    write(
        tmp_path,
        specs__a_dot_dvc="outs:\n- path: ../data\n",
        specs__b_dot_dvc="outs:\n- path: ../../data\n",
    )
    items, (problem,) = expanded(tmp_path / "specs", "a.dvc", "b.dvc")
    assert items == (DataItem("../data", source="a.dvc:2"),) and problem.where == "b.dvc:2"
    link = tmp_path.parent / f"{tmp_path.name}-link"
    link.symlink_to(tmp_path)
    assert expand_items([DataItem("a.dvc")], link / "specs", tmp_path)[0] == items


def test_a_declaration_outside_the_checkout_is_bound_to_its_own_folder(tmp_path: Path) -> None:
    write(tmp_path, far__a_dot_dvc="outs:\n- path: x\n- path: ../y\n", near__keep="")
    items, (problem,) = expanded(tmp_path / "near", str(tmp_path / "far/a.dvc"))
    assert [item.path for item in items] == [
        str(tmp_path / "far/x")
    ] and "leads out of" in problem.message


def test_a_sha256_for_a_declaration_is_that_of_its_bytes(tmp_path: Path) -> None:
    text = "outs:\n- path: a\n"
    (tmp_path / "a.dvc").write_text(text)
    good = DataItem("a.dvc", hashlib.sha256(text.encode()).hexdigest())
    assert expand_items([good], tmp_path)[1] == ()
    (problem,) = expand_items([DataItem("a.dvc", "0" * 64)], tmp_path)[1]
    assert f"sha256 expected {'0' * 64}, found {good.sha256}" in problem.message


def test_what_is_no_readable_file_is_a_problem_not_a_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.dvc")
    (tmp_path / "large.dvc").write_bytes(b"#" * (MAX_DVC + 1))
    (tmp_path / "folder.dvc").mkdir()
    items, problems = expanded(tmp_path, "pipe.dvc", "large.dvc", "gone.dvc", "folder.dvc")
    assert items == (DataItem("folder.dvc"),)
    assert [(problem.where, problem.message.partition(",")[0]) for problem in problems] == [
        ("pipe.dvc", "is not a regular file"),
        ("large.dvc", "is larger than 1048576 bytes"),
        ("gone.dvc", "is not there"),
    ]


def test_croissant_stands_for_its_local_files(tmp_path: Path) -> None:
    write(tmp_path, set__a_dot_csv="abc", set__b_dot_csv="abc", set__with_space="abc")
    (tmp_path / "set/with space").write_text("abc")
    files = (
        file_object(contentUrl="a.csv", sha256=ABC_SHA.upper(), contentSize="3 B"),
        {"@type": "sc:FileObject", "sc:contentUrl": "./b.csv", "cr:md5": ABC_MD5, "contentSize": 3},
        {
            "@type": ["https://schema.org/FileObject"],
            "contentUrl": "with%20space",
            "sha256": f"sha256:{ABC_SHA}",
        },
        file_object(
            contentUrl="https://example.com/x/a.csv?download=1", name="elsewhere", sha256=ABC_SHA
        ),
        file_object(
            contentUrl="inside.csv", containedIn={"@id": "one"}, sha256="covered by the container"
        ),
        {"@type": "cr:FileSet", "@id": "set", "containedIn": {"@id": "one"}, "includes": "*.csv"},
    )
    (tmp_path / "set/croissant.json").write_text(croissant(*files))
    items, problems = expanded(tmp_path, "set/croissant.json")
    assert problems == ()
    assert [(item.path, item.sha256, item.md5, item.size) for item in items] == [
        ("set/a.csv", ABC_SHA, None, 3),
        ("set/b.csv", None, ABC_MD5, 3),
        ("set/with space", ABC_SHA, None, None),
        ("set/a.csv", ABC_SHA, None, None),
    ]
    assert all(finding.matches for finding in verify_data(items, tmp_path))
    line = int(items[0].source.rpartition(":")[2])
    assert ABC_SHA.upper() in (tmp_path / "set/croissant.json").read_text().splitlines()[line - 1]


@pytest.mark.parametrize(
    ("fields", "at", "kind", "said"),
    [
        (
            {"contentUrl": "a.csv", "sha256": "abc"},
            "sha256",
            "digest",
            "sha256 has 3 characters, wanted 64 hex digits: abc",
        ),
        (
            {"contentUrl": "a.csv", "sha256": ABC_MD5},
            "sha256",
            "digest",
            "sha256 has 32 characters",
        ),
        (
            {"contentUrl": "a.csv", "sha512": ABC_SHA},
            "sha512",
            "digest",
            "sha512 has 64 characters, wanted 128",
        ),
        (
            {"contentUrl": "a.csv", "sha1": "a" * 39},
            "sha1",
            "digest",
            "sha1 has 39 characters, wanted 40",
        ),
        (
            {"contentUrl": "a.csv", "sha256": HUGGING_FACE},
            "sha256",
            "digest",
            "sha256 has 48 characters",
        ),
        (
            {"contentUrl": "a.csv", "blake3": ABC_SHA},
            "blake3",
            "digest",
            "`blake3` is not a digest that is known",
        ),
        ({"contentUrl": "a.csv", "sha1": "a" * 40}, "sha1", "declaration", "has only sha1"),
        (
            {"contentUrl": "https://example.com/gone.csv", "sha256": ABC_SHA},
            "contentUrl",
            "declaration",
            "is not on this machine",
        ),
        (
            {"contentUrl": "s3://bucket/a.csv", "sha256": ABC_SHA},
            "contentUrl",
            "declaration",
            "is not on this machine",
        ),
        (
            {"contentUrl": "file:///etc/passwd", "sha256": ABC_SHA},
            "contentUrl",
            "declaration",
            "is not on this machine",
        ),
        (
            {"contentUrl": "/etc/passwd", "sha256": ABC_SHA},
            "sha256",
            "declaration",
            "leads out of the checkout",
        ),
        (
            {"contentUrl": "../../a.csv", "sha256": ABC_SHA},
            "sha256",
            "declaration",
            "leads out of the checkout",
        ),
        ({"contentUrl": "a\0.csv", "sha256": ABC_SHA}, "sha256", "declaration", "is not a path"),
        ({"contentUrl": "\ud800", "sha256": ABC_SHA}, "sha256", "declaration", "is not a path"),
        ({"sha256": ABC_SHA}, "@type", "declaration", "has no contentUrl"),
        (
            {"contentUrl": "a.csv", "contentSize": "some"},
            "contentSize",
            "declaration",
            'contentSize is "some"',
        ),
        (
            {"contentUrl": "a.csv", "contentSize": "1.5 B"},
            "contentSize",
            "declaration",
            'contentSize is "1.5 B"',
        ),
        (
            {"contentUrl": "a.csv", "containedIn": {"@id": "nothing"}},
            "containedIn",
            "declaration",
            "contained in nothing",
        ),
    ],
)
def test_a_wrong_file_object_is_a_problem_with_its_line(
    tmp_path: Path, fields: dict[str, Any], at: str, kind: str, said: str
) -> None:
    write(tmp_path, set__a_dot_csv="abc")
    text = croissant(
        {**file_object(name="first", contentUrl="a.csv", sha256="0" * 64), "@id": "other"},
        file_object(**fields),
    )
    (tmp_path / "set/croissant.json").write_text(text)
    problem = the_problem(tmp_path, "set/croissant.json")
    assert problem.kind == kind and said in problem.message and problem.remedy
    lines = text.splitlines()
    line = int(problem.where.removeprefix("set/croissant.json:"))
    assert line > len(lines) // 2 and (
        f'"{at}"' in lines[line - 1] or at in ("@type", "containedIn")
    )


@pytest.mark.parametrize(
    ("said", "size"),
    [
        ("3", 3),
        (3, 3),
        ("1,024 B", 1024),
        ("2 bytes", 2),
        ("1.0 B", 1),
        ("1.5 KB", None),
        ("1 KiB", None),
        ("2 M", None),
    ],
)
def test_a_size_in_bytes_must_be_true_and_a_rounded_one_is_not_compared(
    tmp_path: Path, said: str | int, size: int | None
) -> None:
    (tmp_path / "a").write_bytes(bytes(size or 7))
    (tmp_path / "c.json").write_text(croissant(file_object(contentUrl="a", contentSize=said)))
    items, problems = expanded(tmp_path, "c.json")
    assert problems == () and items[0].size == size
    assert not verify_data(items, tmp_path)[0].mismatches
    (tmp_path / "a").write_bytes(bytes((size or 7) + 1))
    assert bool(verify_data(items, tmp_path)[0].mismatches) is (size is not None)


def test_a_key_that_stands_twice_in_metadata_is_refused_and_in_other_json_it_is_data(
    tmp_path: Path,
) -> None:
    text = croissant(file_object(contentUrl="a.csv", sha256=ABC_SHA))
    (tmp_path / "c.json").write_text(
        text.replace('"sha256": "' + ABC_SHA, f'"sha256": "{"0" * 64}",\n"sha256": "{ABC_SHA}')
    )
    assert "the key `sha256` stands twice" in the_problem(tmp_path, "c.json").message
    (tmp_path / "d.json").write_text('{"@context": 1, "a": 1, "a": 2}')
    assert expanded(tmp_path, "d.json") == ((DataItem("d.json"),), ())


def test_a_text_that_stands_earlier_too_costs_only_the_line(tmp_path: Path) -> None:
    data = json.loads(croissant(*[file_object(contentUrl="a.csv", sha256="abc")] * 1_000))
    (tmp_path / "c.json").write_text(
        json.dumps({"note": {"distribution": [list(range(100_000))]}, **data})
    )
    problems = expanded(tmp_path, "c.json")[1]
    assert (
        len(problems) == 1_000
        and problems[0].where == "c.json:1"
        and "sha256 has 3 characters" in problems[0].message
    )


@pytest.mark.parametrize(
    "key",
    ["conformsTo", "name", "@id", "containedIn", "contentSize", "sha256", "@type", "contentUrl"],
)
def test_deep_values_in_metadata_are_no_crash(tmp_path: Path, key: str) -> None:
    nested = "[" * 900 + "]" * 900
    entry = json.dumps({**file_object(contentUrl="a.csv", sha256=ABC_SHA), key: "DEEP"}).replace(
        '"DEEP"', nested
    )
    top = (
        f'{{"@context": {{}}, "conformsTo": {nested}, "distribution": [{{"@type": '
        f'"FileObject"}}, {entry}]}}'
    )
    (tmp_path / "c.json").write_text(top)
    items, problems = expanded(tmp_path, "c.json")
    assert problems or items


def test_a_set_of_files_without_a_container_cannot_be_verified(tmp_path: Path) -> None:
    (tmp_path / "c.jsonld").write_text(
        croissant({"@type": "cr:FileSet", "@id": "all", "includes": "*.csv"})
    )
    assert "FileSet all has no digest" in the_problem(tmp_path, "c.jsonld").message
    (tmp_path / "c.jsonld").write_text(croissant())
    assert "names no file" in the_problem(tmp_path, "c.jsonld").message


OTHER_JSON = (
    "[1, 2]",
    '{"@context": 1}',
    '{"@context": ',
    '"@context"',
    "[" * 100_000,
    '{"@context": {}, "distribution": [{}]}',
    "",
)


@pytest.mark.parametrize("text", OTHER_JSON, ids=range(len(OTHER_JSON)))
def test_other_json_is_data(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.json").write_text(text)
    assert expanded(tmp_path, "a.json") == ((DataItem("a.json"),), ())


def test_metadata_beyond_any_size_is_a_problem_and_large_data_is_not(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b'{"@context": {}}' + b" " * MAX_CROISSANT)
    (tmp_path / "b.json").write_bytes(b"[]" + b" " * MAX_CROISSANT)
    items, problems = expanded(tmp_path, "a.json", "b.json")
    assert [item.path for item in items] == ["a.json", "b.json"] and [
        problem.where for problem in problems
    ] == ["a.json"]


@pytest.mark.parametrize("target", ["../secret.yml", ".git/config"])
def test_a_dvc_file_that_is_a_link_out_of_the_checkout_is_not_read(
    tmp_path: Path, target: str
) -> None:
    """What is wrong with one is told in its own words."""
    secret = "outs:\n- path: words-of-somebody://x\n"
    (tmp_path / "secret.yml").write_text(secret)
    folder = tmp_path / "checkout"
    (folder / ".git").mkdir(parents=True)
    (folder / ".git" / "config").write_text(secret)
    (folder / "a.csv").write_text("abc")
    (folder / "a.csv.dvc").symlink_to(target)
    for declared in ("a.csv.dvc", "a.csv", f"/proc/self/root{folder}/a.csv.dvc"):
        (problem,) = expanded(folder, declared)[1]
        assert "is a link to a file that" in problem.message and "of-somebody" not in str(
            problem
        ), declared


def test_a_dvc_file_may_be_a_link_inside_the_checkout_or_lie_outside_it(tmp_path: Path) -> None:
    folder = tmp_path / "checkout"
    (folder / ".git").mkdir(parents=True)
    (folder / "real.dvc").write_text(f"outs:\n- path: a.csv\n  md5: {ABC_MD5}\n  hash: md5\n")
    (tmp_path / "far.dvc").write_text(f"outs:\n- path: a.csv\n  md5: {ABC_MD5}\n  hash: md5\n")
    (folder / "link.dvc").symlink_to("real.dvc")
    items, problems = expanded(folder, "link.dvc", str(tmp_path / "far.dvc"))
    assert not problems and [item.md5 for item in items] == [ABC_MD5, ABC_MD5]
