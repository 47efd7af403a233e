"""How `repro-gate init` says that a script is started: a README's command, the folder, PYTHONPATH,
and the data that git ignores. The layouts are those of public repositories."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from repro_gate.cli import main
from repro_gate.commands import starting
from repro_gate.spec.loader import load_spec
from repro_gate.spec.model import Spec
from tests.support.repositories import git

TORCH = "import torch\nfor step in range(3):\n    pass\n"
BLOCK = "# Title\n\n```bash\n{}\n```\n"


def drafted(root: Path, files: dict[str, str], *arguments: str) -> Spec:
    """Return the spec that `init` writes for these files, all committed but what git ignores."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    git(root, "init", "-q")
    git(root, "add", "-A")
    assert main(["init", str(root), "--force", *arguments]) == 0
    return load_spec(root)


@pytest.fixture(autouse=True)
def a_machine_with_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting, "gpu_devices", lambda: ("nvidia0",))


@pytest.mark.parametrize(
    ("files", "script", "start"),
    [
        # tkipf/pygcn: the README of the top has the command of the folder below
        (
            {
                "README.md": "## Usage\n\n```python train.py```\n",
                "pygcn/__init__.py": "",
                "pygcn/utils.py": "path='../data/cora/'",
                "pygcn/train.py": "from pygcn.utils import load\n" + TORCH,
            },
            "pygcn/train.py",
            ("python train.py", "pygcn", ".."),
        ),
        # pytorch/examples
        (
            {
                "mnist/README.md": BLOCK.format("pip install x\npython main.py  # comment"),
                "mnist/main.py": TORCH,
            },
            "mnist/main.py",
            ("python main.py", "mnist", ""),
        ),
        (
            {
                "README.md": BLOCK.format(
                    "git clone x && cd gcn\n$ python main.py --lr 0.1 \\\n --x 1"
                ),
                "gcn/main.py": TORCH,
            },
            "gcn/main.py",
            ("python main.py --lr 0.1   --x 1", "gcn", ""),
        ),
        # no README: the paths of the code say it
        (
            {"vae/main.py": TORCH + "d = '../data'\n", "data/readme": ""},
            "vae/main.py",
            ("python main.py", "vae", ""),
        ),
        (
            {"tools/main.py": TORCH + "d = './data/x'\n", "data/x": ""},
            "tools/main.py",
            ("python tools/main.py", ".", ""),
        ),
        # lucidrains, Lightning, accelerate: a package beside the examples
        (
            {"examples/a.py": "from vq import VQ\n" + TORCH, "vq/__init__.py": ""},
            "examples/a.py",
            ("python examples/a.py", ".", "."),
        ),
        (
            {
                "examples/README.md": BLOCK.format("accelerate launch ./nlp.py"),
                "examples/nlp.py": "import accelerate, json, data.net\n" + TORCH,
                "src/accelerate/__init__.py": "",
                "examples/data/net.py": "",
            },
            "examples/nlp.py",
            ("accelerate launch ./nlp.py", "examples", "../src"),
        ),
        # beside the script there is nothing to add
        (
            {"my/train.py": "import nets, torch\n" + TORCH, "my/nets.py": "", "torch.txt": ""},
            "my/train.py",
            ("python my/train.py", ".", ""),
        ),
    ],
)
def test_a_script_is_started_where_its_imports_and_paths_resolve(
    files: dict[str, str], script: str, start: tuple[str, str, str], tmp_path: Path
) -> None:
    train = drafted(tmp_path / "repo", files, "--script", script).train
    path = train.env.get("PYTHONPATH", "")
    assert ((train.run or "").split(), train.working_directory, path) == (
        start[0].split(),
        *start[1:],
    )


@pytest.mark.parametrize(
    ("lines", "run"),
    [
        ("python train.py --data /path/to/data", "python train.py"),
        ("python train.py <CONFIG>", "python train.py"),
        ("torchrun --nnodes=2 --node_rank=0 train.py --lr 1", "python train.py"),
        ("python eval.py\npython other/train.py\nvim train.py", "python train.py"),
        ("python train.py --lr 1 > log\npython train.py --lr 2", "python train.py --lr 2"),
        ("A=1 python3 train.py --lr 3", "A=1 python3 train.py --lr 3"),
        ("python train.py 'unclosed", "python train.py"),
        ("python -m train --lr 4", "python -m train --lr 4"),
    ],
)
def test_a_command_that_has_to_be_filled_in_or_is_of_another_script_is_not_taken(
    lines: str, run: str, tmp_path: Path
) -> None:
    files = {"train.py": TORCH, "eval.py": "", "README.md": BLOCK.format(lines)}
    assert drafted(tmp_path / "repo", files).train.run == run


def test_the_command_has_the_gates_seed_and_without_a_gpu_is_that_for_the_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = TORCH + "parser.add_argument('--seed')\n"
    lines = "python train.py --seed 1 --big\npython train.py --device=cpu"
    files = {"train.py": source, "README.md": BLOCK.format(lines)}
    assert drafted(tmp_path / "a", files).train.run == "python train.py --seed {seed} --big"
    assert (
        "# README has it too as: python train.py --device=cpu"
        in (tmp_path / "a/repro.yml").read_text()
    )
    monkeypatch.setattr(starting, "gpu_devices", lambda: ())
    assert drafted(tmp_path / "b", files).train.run == "python train.py --device=cpu --seed {seed}"


NANO = {
    ".gitignore": "*.bin\n*.pkl\nout/\nother/\n",
    "train.py": TORCH
    + "out_dir = 'out'\nd = os.path.join('data', dataset)\nnp.memmap('train.bin')\n",
    "config/shakespeare.py": "dataset = 'shakespeare'\n",
    "README.md": BLOCK.format("python train.py config/shakespeare.py"),
    "data/shakespeare/prepare.py": "",
    "data/shakespeare/train.bin": "123",
    "data/shakespeare/meta.pkl": "",
    "out/ckpt.bin": "",
    "other/a.csv": "12",
}


def test_the_data_that_git_ignores_and_the_code_names_is_declared_whole(tmp_path: Path) -> None:
    spec = drafted(tmp_path / "repo", NANO)
    assert [item.path for item in spec.data] == ["data/shakespeare"]
    text = (tmp_path / "repo/repro.yml").read_text()
    assert "  - path: data/shakespeare  # 2 files, 3 B\n" in text
    assert "\n#   - path: other  # 1 file, 2 B\n" in text, "nobody names it"
    assert "path: out" not in text, "what a training writes is no data"
    # from a folder of the checkout
    files = {**NANO, "sub/fit.py": TORCH + "x = '../other'\n"}
    drafted(tmp_path / "two", files)
    assert main(["init", str(tmp_path / "two/sub")]) == 0
    assert [item.path for item in load_spec(tmp_path / "two/sub").data] == ["../other"]


def test_names_that_yaml_or_a_readme_could_break_out_with_are_quoted(tmp_path: Path) -> None:
    files = {
        ".gitignore": "my data/\n1/\n",
        "train.py": TORCH + "x = 'my data/b#1'\ny = '1/'\n",
        "my data/b#1/x": "",
        "1/x": "",
        "README.md": BLOCK.format("python train.py 'a:#b, \"'\npython train.py \u202e"),
    }
    spec = drafted(tmp_path / "repo", files)
    assert [item.path for item in spec.data] == ["my data/b#1", "1"]
    assert spec.train.run == "python train.py 'a:#b, \"'"
    assert "\u202e" not in (tmp_path / "repo/repro.yml").read_text()


def test_without_git_nothing_is_ignored_and_a_reader_is_told_what_to_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").write_text(TORCH)
    monkeypatch.chdir(tmp_path)
    assert main(["init"]) == 0
    said = capsys.readouterr().out
    assert "check `train.run`, it must be the command that you type" in said
    assert said.endswith("first try: repro-gate run --quick --steps 2\n")
    assert load_spec(tmp_path).data == () and json.dumps(said)
