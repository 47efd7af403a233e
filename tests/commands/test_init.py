"""`repro-gate init`: which script it takes or refuses to choose, and that what it writes
loads and runs that script."""

from __future__ import annotations

import json
import os
import shlex
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from repro_gate.cli import main
from repro_gate.commands import init as drafting
from repro_gate.spec.loader import load_spec
from repro_gate.spec.schema import schema

TORCH = "import torch\nfor step in range(3):\n    pass\n"
GUARD = "if __name__ == '__main__':\n    main()\n"
SEEDED = TORCH + "parser.add_argument('-s', '--seed', type=int)\n"
MODULE = "import torch\nLAYERS = 3\nclass Net(torch.nn.Module):\n    pass\n"


def notebook(*cells: str) -> str:
    return json.dumps({"cells": [{"cell_type": "code", "source": [cell]} for cell in cells]})


def put(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


@pytest.fixture
def twins(tmp_path: Path) -> Path:
    put(tmp_path, {"a/train.py": TORCH, "b/train.py": TORCH})
    return tmp_path


@pytest.mark.parametrize(
    ("files", "run"),
    [
        ({"train.py": TORCH, "model.py": MODULE, "eval.py": TORCH}, "python train.py"),
        ({"train.py": SEEDED}, "python train.py --seed {seed}"),
        ({"train.py": TORCH + "seed = 1  # --seed\n"}, "python train.py"),
        ({"train.py": "from engine import main\n" + GUARD}, "python train.py"),
        ({"main.py": GUARD, "fit.py": "import lightning as L\n" + GUARD}, "python fit.py"),
        ({"train.py": MODULE, "main.py": "import torch\n" + GUARD}, "python main.py"),
        ({"train.py": TORCH, "train_ddp.py": TORCH}, "python train.py"),
        ({"tools/fine_tune.py": TORCH, "sample.py": TORCH}, "python tools/fine_tune.py"),
        ({"train.py": TORCH, "examples/train.py": TORCH}, "python train.py"),
        ({"pkg/train.py": "from .net import Net\n" + TORCH}, "python -m pkg.train"),
        ({"run.py": TORCH, "tests/train.py": TORCH, "test_train.py": TORCH}, "python run.py"),
        ({"run.py": TORCH, ".old/train.py": TORCH, "venv/train.py": TORCH}, "python run.py"),
        ({"run.py": TORCH, "my/train.py": TORCH, "my/pyvenv.cfg": ""}, "python run.py"),
        ({"run.py": TORCH, "train.py": "def (:\n"}, "python run.py"),
        ({"a.ipynb": notebook("%pip install x\nimport torch")}, "jupyter execute a.ipynb"),
        ({"train.ipynb": notebook("import torch"), "run.py": TORCH}, "python run.py"),
        ({"a.ipynb": notebook("from .x import y\n" + SEEDED)}, "jupyter execute a.ipynb"),
    ],
)
def test_the_script_that_trains_is_taken(files: dict[str, str], run: str, tmp_path: Path) -> None:
    put(tmp_path, files)
    assert main(["init", str(tmp_path)]) == 0
    assert load_spec(tmp_path).train.run == run


NONE = "no training script was found"
SEVERAL = "several scripts may be the training: "


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({}, NONE),
        ({"model.py": MODULE, "tool.py": GUARD, "plots.ipynb": notebook("x = 1")}, NONE),
        ({"main.py": TORCH, "train.py": TORCH}, f"{SEVERAL}main.py, train.py"),
        ({"a/train.py": TORCH, "b/train.py": TORCH}, f"{SEVERAL}a/train.py, b/train.py"),
        ({"bpe.py": TORCH, "projects/adder.py": TORCH}, f"{SEVERAL}bpe.py, projects/adder.py"),
        (
            {"a.ipynb": notebook("import torch"), "b.ipynb": notebook("import torch")},
            f"{SEVERAL}a.ipynb, b.ipynb",
        ),
    ],
)
def test_none_is_taken_where_there_is_none_or_none_is_likelier(
    files: dict[str, str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(tmp_path, files)
    assert main(["init", str(tmp_path)]) == 2
    printed = capsys.readouterr().err
    assert "--script" in printed and said in printed
    assert not (tmp_path / "repro.yml").exists()


def test_the_script_is_named_from_the_checkout_or_from_here_and_lies_inside(
    twins: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder, name in ((twins / "b", "../a/train.py"), (twins, "none.py"), (twins, "a")):
        assert main(["init", str(folder), "--script", name]) == 2
    assert main(["init", str(twins), "--script", "b/train.py"]) == 0
    assert load_spec(twins).train.run == "python b/train.py"
    monkeypatch.chdir(twins / "a")
    assert main(["init", "..", "--force", "--script", "train.py"]) == 0
    assert load_spec(twins).train.run == "python a/train.py"


@pytest.mark.parametrize("section", ["resume", "equivalent"])
def test_a_section_that_is_suggested_loads_as_it_stands(section: str, tmp_path: Path) -> None:
    put(tmp_path, {"train.py": TORCH})
    assert main(["init", str(tmp_path)]) == 0
    path = tmp_path / "repro.yml"
    head, _, rest = path.read_text().partition(f"# {section}:\n")
    lines, _, tail = rest.partition("\n\n")
    path.write_text(f"{head}{section}:\n" + lines.replace("#  ", "  ") + "\n\n" + tail)
    assert getattr(load_spec(path), section)


def test_a_spec_is_kept_unless_forced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(tmp_path, {"train.py": TORCH, "b/run.py": TORCH, "poetry.lock": "", "repro.yml": "mine"})
    assert main(["init", str(tmp_path)]) == 2 and "--force" in capsys.readouterr().err
    assert main(["init", str(tmp_path), "--stdout"]) == 0
    text = capsys.readouterr().out
    assert (tmp_path / "repro.yml").read_text() == "mine"
    assert main(["init", str(tmp_path), "--force"]) == 0
    assert "train.py (by its name, imports torch)" in capsys.readouterr().out
    assert (tmp_path / "repro.yml").read_text() == text
    assert text.startswith(f"# yaml-language-server: $schema={schema()['$id']}\n")
    assert "# Taken: train.py" in text and "b/run.py" in text and "lockfile: poetry.lock" in text
    assert load_spec(tmp_path).env.lockfile is None and load_spec(tmp_path).data == ()
    assert main(["init", str(tmp_path / "none")]) == 2


@pytest.mark.parametrize(("most", "code"), [(1, 2), (2, 0)])
@pytest.mark.parametrize("limit", ["scripts", "folders"])
def test_a_checkout_that_is_too_large_needs_the_script_named(
    limit: str, most: int, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, {"train.py": TORCH, "a/model.py": MODULE, "b/data.txt": ""})
    (tmp_path / "loop").symlink_to(tmp_path)
    monkeypatch.setitem(drafting._MOST, limit, most)
    assert main(["init", str(tmp_path), "--stdout"]) == code
    assert main(["init", str(tmp_path), "--script", "train.py"]) == 0


def test_a_script_that_is_too_large_or_leads_out_is_not_read(tmp_path: Path) -> None:
    code = tmp_path / "code"
    put(code, {"run.py": TORCH, "train.py": TORCH + "#" * 2**20})
    put(tmp_path, {"secret.py": TORCH})
    (code / "main.py").symlink_to("../secret.py")
    os.mkfifo(code / "fit.py")
    assert main(["init", str(code)]) == 0
    assert load_spec(code).train.run == "python run.py"


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["-x", "it's a: {train} #1", "a #b", "é={x}", "$HOME `id`", '"\\', "{{a}"])
    | st.text(st.characters(exclude_characters="/\0", codec="utf-8"), min_size=1, max_size=12)
)
def test_a_file_of_any_name_is_run_as_it_is_named(name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root, path = Path(folder), f"{name}.py"
        put(root, {path: TORCH})
        assert main(["init", folder, f"--script={path}"]) == (0 if name.isprintable() else 2)
        if name.isprintable():
            run = shlex.split(load_spec(root).train.run or "")
            assert run in (["python", path], ["python", f"./{path}"])


DEEP = "x" + ".y" * 900


@pytest.mark.parametrize(
    "text",
    [
        f"if {DEEP}:\n    pass\n",
        "if " + "x" + ".y" * 50_000 + ":\n    pass\n",
        "x = " + "(" * 5_000 + ")" * 5_000,
        "x = " + "-" * 50_000 + "1",
        "x = 1" + " + 1" * 50_000,
        "lambda: " * 5_000 + "1",
    ],
)
def test_source_of_any_depth_is_no_traceback(text: str, tmp_path: Path) -> None:
    put(tmp_path, {"train.py": TORCH, "deep.py": TORCH + text})
    for more in ([], ["--script", "deep.py"]):
        assert main(["init", str(tmp_path), "--stdout", *more]) == 0


def test_a_guard_is_known_by_its_name(tmp_path: Path) -> None:
    put(tmp_path, {"train.py": MODULE + GUARD, "main.py": MODULE + f"if {DEEP}:\n    pass\n"})
    assert main(["init", str(tmp_path)]) == 0
    assert load_spec(tmp_path).train.run == "python train.py"


def test_a_forced_spec_replaces_a_link_and_leaves_what_it_leads_to(tmp_path: Path) -> None:
    code = tmp_path / "code"
    put(tmp_path, {"code/train.py": TORCH, "mine": "kept"})
    for target in ("../mine", "../none"):
        (code / "repro.yml").unlink(missing_ok=True)
        (code / "repro.yml").symlink_to(target)
        assert main(["init", str(code)]) == 2
        assert main(["init", str(code), "--force"]) == 0
        assert not (code / "repro.yml").is_symlink() and load_spec(code).train.run
    assert (tmp_path / "mine").read_text() == "kept" and not (tmp_path / "none").exists()
