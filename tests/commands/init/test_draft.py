"""`draft_spec` on real folders: what it finds, what it says, and that the draft always loads."""

from __future__ import annotations

import hashlib
import os
import shlex
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from repro_gate.commands.init import survey
from repro_gate.commands.init.draft import draft_spec, yaml_text
from repro_gate.commands.init.scripts import training_scripts
from repro_gate.spec.document import parse
from repro_gate.spec.loader import load_spec
from repro_gate.spec.model import Spec
from repro_gate.spec.schema import schema

TRAINING = (
    "import torch\nloss.backward()\noptimizer.step()\nif __name__ == '__main__':\n    main()\n"
)
SEEDED = (
    "import argparse, torch\np = argparse.ArgumentParser()\np.add_argument('--seed', type=int, "
    "default=1337)\n" + TRAINING
)

RELATIVE = "from .. import x\n" + TRAINING
GUESS = ("python train.py", ".")
NOT_ENTERED = (".git", ".venv", "node_modules/x", "my/lib", "build", "x/__pycache__")


def put(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def draft(root: Path) -> str:
    tree = survey.walk(root)
    return draft_spec(root, tree, training_scripts(root, tree), lambda path: None)


def drafted(root: Path) -> tuple[str, Spec]:
    text = draft(root)
    (root / "repro.yml").write_text(text)
    return text, load_spec(root)


def test_an_empty_folder_gives_a_draft_that_loads_and_explains_every_key(tmp_path: Path) -> None:
    text, spec = drafted(tmp_path)
    lines = text.splitlines()
    assert lines[0] == f"# yaml-language-server: $schema={schema()['$id']}"  # for editors
    assert "FILL IN: no training script was found" in text and spec.train.run == "python train.py"
    assert spec.data == () and spec.env.lockfile is None
    keys = (
        "version run working-directory steps warmup timeout env seed compare allow every measure "
        "code profile"
    )
    for key in keys.split():
        at = next(index for index, line in enumerate(lines) if line.strip().startswith(f"{key}:"))
        assert lines[at - 1].strip().startswith("#"), key


@pytest.mark.parametrize(
    ("files", "start", "note"),
    [
        (
            {
                "train.py": SEEDED,
                "model.py": "import torch\n",
                "setup.py": "",
                "tests/test_train.py": TRAINING,
            },
            ("python train.py --seed {seed}", "."),
            "Guessed: train.py (imports torch, calls `.backward(`",
        ),
        (
            {"scripts/train_gpt.py": TRAINING, "main.py": "print(1)\n"},
            ("python scripts/train_gpt.py", "."),
            "seeds Python, NumPy and torch",
        ),
        (
            {"main.py": "print('server')\n", "experiment.py": TRAINING},
            ("python experiment.py", "."),
            "",
        ),
        (
            {"main.py": "print('server')\n", "tool.py": "if __name__ == '__main__': pass\n"},
            GUESS,
            "FILL IN",
        ),
        (
            {"src/pkg/__init__.py": "", "src/pkg/__main__.py": "from . import fit\n" + TRAINING},
            ("python -m pkg", "src"),
            "",
        ),
        (
            {"pkg/__init__.py": "", "pkg/sub/__init__.py": "", "pkg/sub/train.py": RELATIVE},
            ("python -m pkg.sub.train", "."),
            "",
        ),
        (
            {
                "train.py": TRAINING + "p.add_argument('config')\np.add_argument('--data', "
                "required=True)\np.add_argument('x', nargs='?')\n"
            },
            GUESS,
            "it asks for config, --data: add what it needs",
        ),
        (
            {"train.py": TRAINING + "torch.distributed.init_process_group('gloo')\n"},
            GUESS,
            "torchrun",
        ),
        ({"train.py": TRAINING + "def (:\n"}, GUESS, ""),  # it does not parse
        (
            {**{f"{place}/train.py": SEEDED for place in NOT_ENTERED}, "my/pyvenv.cfg": ""},
            GUESS,
            "FILL IN",
        ),
    ],
)
def test_the_script_that_trains_is_found_and_started_as_it_asks(
    files: dict[str, str], start: tuple[str, str], note: str, tmp_path: Path
) -> None:
    put(tmp_path, files)
    text, spec = drafted(tmp_path)
    assert (spec.train.run, spec.train.working_directory) == start and note in text
    assert "{seed}" not in start[0] or spec.random_state.seeds == (1337,)


LOCKS = (
    "uv.lock",
    "pylock.toml",
    "pylock.dev.toml",
    "requirements.lock",
    "requirements-dev.lock",
)


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        *((name, "x", True) for name in LOCKS),
        ("requirements.txt", "torch\n", False),
        ("requirements.txt", "torch==2 --hash=sha256:ab\n", True),  # it counts if it pins by hash
    ],
)
def test_a_lockfile_is_found(tmp_path: Path, name: str, text: str, found: bool) -> None:
    put(tmp_path, {name: text})
    assert drafted(tmp_path)[1].env.lockfile == (name if found else None)


def test_small_data_is_listed_with_its_checksum(tmp_path: Path) -> None:
    put(
        tmp_path,
        {
            "data/train.bin": "abc",
            "points.csv": "1,2",
            "data/prepare.py": "",
            "out/metrics.csv": "1",
            "tests/data/x.bin": "1",
        },
    )
    spec = drafted(tmp_path)[1]
    assert {item.path: item.sha256 for item in spec.data} == {
        "data/train.bin": hashlib.sha256(b"abc").hexdigest(),
        "points.csv": hashlib.sha256(b"1,2").hexdigest(),
    }


def test_large_data_is_named_in_a_comment_and_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").mkdir()
    with (tmp_path / "data/big.npy").open("wb") as stream:
        stream.truncate(300 * 2**20)
    start = time.monotonic()
    text, spec = drafted(tmp_path)
    assert spec.data == () and "# data:\n" in text and "data/big.npy" in text
    assert time.monotonic() - start < 2
    monkeypatch.setattr(survey, "MAX_HASHED_BYTES", 10)
    put(tmp_path, {"data/a.bin": "12345678", "data/b.bin": "12345678"})
    text, spec = drafted(tmp_path)
    assert [item.path for item in spec.data] == ["data/a.bin"]
    assert "#   - {path: data/b.bin, sha256: …}  # 8 bytes" in text


def test_a_loop_of_links_ends_and_a_huge_checkout_is_looked_at_in_part_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "gone.bin").symlink_to(tmp_path / "nowhere")
    assert drafted(tmp_path)[1].data == ()
    monkeypatch.setattr(survey, "MAX_FILES", 3)
    put(tmp_path, {f"a{index}.txt": "" for index in range(9)})
    assert "only a part of it was looked at" in draft(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_what_cannot_be_read_is_passed_over(tmp_path: Path) -> None:
    put(tmp_path, {"data/x.bin": "1", "train.py": TRAINING})
    (tmp_path / "data/x.bin").chmod(0)
    assert drafted(tmp_path)[1].data == ()


def test_odd_paths_are_quoted_for_the_shell_and_for_yaml(tmp_path: Path) -> None:
    put(
        tmp_path,
        {
            "it's a: {train} #1/train.py": TRAINING,
            "data/a}, b: [x] #'\".bin": "1",
            "data/yes": "1",
            "data/1.5": "2",
            "data/é= x.bin": "3",
        },
    )
    (tmp_path / "data" / "new\nline.bin").write_text("x")
    spec = drafted(tmp_path)[1]
    assert shlex.split(spec.train.run or "") == ["python", "it's a: {train} #1/train.py"]
    assert {item.path for item in spec.data} == {
        "data/a}, b: [x] #'\".bin",
        "data/yes",
        "data/1.5",
        "data/é= x.bin",
    }


@settings(max_examples=200, deadline=None)
@given(
    st.one_of(
        st.text(max_size=20),
        st.sampled_from(
            [
                "no",
                "010",
                "1e5",
                "~",
                "null",
                ".",
                "..",
                "a: b",
                "a #b",
                "-",
                "? x",
                "12:30",
                "2027-01-01",
                "=",
            ]
        ),
    )
)
def test_a_text_comes_back_as_it_was(text: str) -> None:
    if not text.isprintable():
        return
    assert parse(f"a: {yaml_text(text)}\n").data == {"a": text}
    quoted = parse(f"- {{b: {yaml_text(text)}}}\n") if yaml_text(text).startswith('"') else None
    assert quoted is None or quoted.data == [{"b": text}]


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.lists(
        st.text(
            alphabet=st.characters(exclude_characters="/\0", codec="utf-8"), min_size=1, max_size=12
        ),
        min_size=1,
        max_size=3,
    )
)
def test_any_file_names_give_a_draft_that_loads(
    tmp_path_factory: pytest.TempPathFactory, names: list[str]
) -> None:
    root = tmp_path_factory.mktemp("odd")
    for name in names:
        try:
            put(
                root,
                {
                    f"data/{name}.bin": "x",
                    f"{name}/train.py": TRAINING,
                    f"requirements{name}.lock": "x",
                },
            )
        except OSError:
            continue
    drafted(root)
