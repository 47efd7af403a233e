"""What `init` picks and how it starts it, on small trees that imitate the layouts of public
repositories."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from repro_gate.commands.init.scripts import TrainingScript, training_scripts
from repro_gate.commands.init.survey import training_reads, walk

LOOP = "import torch\nfor x in loader:\n    loss(x).backward()\n    optimizer.step()\n"
LIBRARY = (
    "import torch\nclass Trainer:\n    def fit(self):\n        loss.backward()\n        "
    "self.optimizer.step()\n"
)
MAIN = "if __name__ == '__main__':\n    main()\n"
SEED = (
    "import argparse\np = argparse.ArgumentParser()\np.add_argument('--seed', type=int, "
    "default=7)\n"
)
FUNCTION = "import torch\ndef main():\n    loss.backward()\n    optimizer.step()\n"


def scripts(root: Path, files: dict[str, str], only: str | None = None) -> list[TrainingScript]:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return training_scripts(root, walk(root), only)


NANOGPT = {
    "README.md": "```sh\npython data/tiny/prepare.py\n```\n```sh\npython train.py "
    "config/train_tiny.py\n```\nOn a laptop:\n"
    "```sh\npython train.py config/train_tiny.py --device=cpu --compile=False "
    "--eval_iters=20\n```\n"
    "`torchrun --standalone --nproc_per_node=8 train.py config/train_big.py`\n$ python train.py "
    "config/eval_big.py\n",
    "train.py": "import torch\nexec(open('configurator.py').read())\ntorch.manual_seed(1337 + "
    "rank)\nwhile True:\n"
    "    loss.backward()\n    scaler.step(optimizer)\n",
    "configurator.py": "import sys\nfor arg in sys.argv:\n    print(arg)\n",
    "config/train_tiny.py": "dataset = 'tiny'\n",
    "config/train_big.py": "dataset = 'big'\n",
    "data/tiny/prepare.py": "import requests\nrequests.get('x')\n",
    "bench.py": LOOP,
    "model.py": "import torch\n",
}
MINGPT = {
    "mingpt/__init__.py": "",
    "mingpt/trainer.py": LIBRARY,
    "projects/chargpt/chargpt.py": "import torch\nfrom mingpt.trainer import Trainer\nif __name__ == '__main__':\n"
    "    text = open('input.txt').read()\n    Trainer().run()\n",
    "projects/adder/adder.py": "import torch, sys\nfrom mingpt.trainer import Trainer\ndef get():\n    C.system.seed = "
    "3407\n"
    "if __name__ == '__main__':\n    config = get()\n    config.merge_from_args(sys.argv[1:])\n "
    "   Trainer().run()\n",
}
PYKAN = {
    "kan/__init__.py": "from kan.Model import *\n",
    "kan/Model.py": LIBRARY,
    "kan/MLP.py": LIBRARY,
    "hello.ipynb": "{}",
    "setup.py": "setup()\n",
}
OPACUS = {
    "README.md": "See the [MNIST example](https://github.com/x/opacus/tree/main/examples/mnist.py).\n",
    "opacus/__init__.py": "",
    "examples/mnist_README.md": "```shell\npython mnist.py --device=cpu --n=20\n```\n"
    "```shell\npython mnist.py --device=cpu -n=15 --lr=.25\n```\n",
    "examples/mnist.py": "import argparse, opacus\n"
    "p = argparse.ArgumentParser()\np.add_argument('-n', '--epochs')\np.add_argument('--lr')\n"
    "p.add_argument('--device')\np.add_argument('--data-root', default='../mnist')\n"
    + FUNCTION
    + MAIN,
    "examples/fsdp_llama3.py": "import transformers\nfrom torch.distributed.fsdp import x\n"
    + FUNCTION
    + MAIN,
    "examples/imdb_README.md": "```\npython imdb.py --device cuda:0\n```\n",
    "examples/imdb.py": "import transformers\nfrom datasets import load_dataset\nload_dataset('imdb')\n"
    + FUNCTION
    + MAIN,
}
TCN = {
    "README.md": "one only need to run `[TASK_NAME]_test.py` (e.g. `add_test.py`).\n",
    "TCN/__init__.py": "",
    "TCN/tcn.py": "import torch\nclass TCN:\n    pass\n",
    "TCN/adding_problem/add_test.py": SEED
    + "import sys\nsys.path.append('../../')\nfrom TCN.tcn import TCN\n"
    + LOOP,
    "TCN/char_cnn/README.md": "```\npython char_cnn_test.py --dataset ptb\n```\n",
    "TCN/char_cnn/char_cnn_test.py": SEED
    + "import sys\nsys.path.append('../../')\np.add_argument('--dataset', default='ptb')\n"
    + LOOP,
    "TCN/char_cnn/utils.py": "import observations\n",
    "tests/tcn_test.py": "import torch\ndef test_it():\n    loss.backward()\n    optimizer.step()\n"
    + MAIN,
}
CLEANRL = {
    "README.md": "`ppo_atari.py` has 340 lines.\n```\nuv run python rl/ppo.py \\\n    --seed 1 "
    "\\\n    --env-id CartPole-v1\n```\n",
    "rl/c51.py": "import tyro\n" + FUNCTION + MAIN,
    "rl/ppo_atari.py": "import tyro\n" + FUNCTION + MAIN,
    "rl/dqn_jax.py": "import jax\n" + FUNCTION + MAIN,
    "rl/ppo.py": "import tyro, wandb\n@dataclass\nclass Args:\n    seed: int = 1\n    env_id: str = 'x'\n"
    "args = tyro.cli(Args)\ntorch.manual_seed(args.seed)\n" + FUNCTION + MAIN,
}
XTRANSFORMERS = {
    "x_transformers/__init__.py": "import torch\n",
    "train_copy.py": "DEVICE = 'cuda' if torch.cuda.is_available() else 'cpu'\n" + LOOP,
    "train_enwik8.py": "import gzip\nwith gzip.open('./data/enwik8.gz') as f:\n    pass\n" + LOOP,
    "train_belief.py": "model.cuda()\n" + LOOP,
}
DIFFEQ = {
    "README.md": "take a look at [`examples/ode_demo.py`](./examples/ode_demo.py)\n",
    "diffeq/__init__.py": "",
    "examples/README.md": "```\npython ode_demo.py --viz\n```\n```\npython odenet_mnist.py --network odenet\n```\n",
    "examples/ode_demo.py": "from diffeq import odeint\n" + FUNCTION + MAIN,
    "examples/odenet_mnist.py": "from diffeq import odeint\nload(download=True)\n"
    + SEED.replace("--seed", "--network")
    + FUNCTION
    + MAIN,
}
TIME_SERIES = {
    "README.md": "## Usage\n```\npython generate_wave.py\npython train.py\n```\n",
    "generate_wave.py": "import numpy as np, torch\ntorch.save(x, open('traindata.pt', 'wb'))\n",
    "train.py": "import numpy as np, torch\nnp.random.seed(0)\ndata = torch.load('traindata.pt')\n"
    + LOOP,
}
IMAGENET = {
    "README.md": "```bash\npython main.py -a resnet18 [imagenet-folder with train and val folders]\n```\n"
    "```bash\npython main.py -a resnet18 --dummy\n```\n",
    "main.py": SEED.replace("7", "None") + "p.add_argument('data', nargs='?', default='x')\n"
    "p.add_argument('-a', '--arch')\np.add_argument('--dummy', action='store_true')\n"
    "dist.init_process_group()\n" + FUNCTION + MAIN,
}
MONOREPO = {
    "vae/main.py": SEED + "datasets.MNIST('../data', download=True)\n" + FUNCTION + MAIN,
    "vae/README.md": "```bash\npip install -r requirements.txt\npython main.py\n```\n",
}
LAYOUTS: dict[str, tuple[dict[str, str], str, str, dict[str, str]]] = {
    "nanoGPT": (
        NANOGPT,
        "python train.py config/train_tiny.py --device=cpu --compile=False --eval_iters=20",
        ".",
        {},
    ),
    "minGPT": (MINGPT, "python projects/adder/adder.py", ".", {"PYTHONPATH": "."}),
    "opacus": (
        OPACUS,
        "python mnist.py --device=cpu -n=15 --lr=.25",
        "examples",
        {"PYTHONPATH": ".."},
    ),
    "TCN": (TCN, "python add_test.py --seed {seed}", "TCN/adding_problem", {}),
    "cleanrl": (
        CLEANRL,
        "python rl/ppo.py --env-id CartPole-v1 --seed {seed}",
        ".",
        {"WANDB_MODE": "disabled"},
    ),
    "x-transformers": (XTRANSFORMERS, "python train_copy.py", ".", {}),
    "torchdiffeq": (DIFFEQ, "python ode_demo.py", "examples", {"PYTHONPATH": ".."}),
    "time_sequence_prediction": (
        TIME_SERIES,
        "python generate_wave.py && python train.py",
        ".",
        {},
    ),
    "imagenet": (IMAGENET, "python main.py -a resnet18 --dummy --seed {seed}", ".", {}),
    "examples": (MONOREPO, "python main.py --seed {seed}", "vae", {}),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_training_of_a_known_layout_is_found(name: str, tmp_path: Path) -> None:
    files, run, folder, env = LAYOUTS[name]
    best = scripts(tmp_path, files)[0]
    assert (best.run, best.working_directory, dict(best.env), best.missing) == (
        run,
        folder,
        env,
        (),
    )


def test_a_module_of_a_library_is_never_a_candidate_and_a_script_can_be_named(
    tmp_path: Path,
) -> None:
    assert [
        script.run for script in scripts(tmp_path / "named", XTRANSFORMERS, "train_belief.py")
    ] == ["python train_belief.py"]
    assert scripts(tmp_path / "alone", PYKAN) == []
    assert "mingpt/trainer.py" not in [
        script.path for script in scripts(tmp_path / "beside", MINGPT)
    ]


@pytest.mark.parametrize(
    ("source", "run", "default"),
    [
        ("p.add_argument('--manualSeed', type=int)", "--manualSeed {seed}", None),
        (
            "@click.command()\n@click.option('--seed', default=4)\ndef main(seed): pass",
            "--seed {seed}",
            4,
        ),
        ("class Args:\n    seed: int = 6\nargs = tyro.cli(Args)", "--seed {seed}", 6),
        ("class A:\n    seed: int = 7\nparser = HfArgumentParser((A, B))", "--seed {seed}", 7),
        ("parser = HfArgumentParser(TrainingArguments)", "--seed {seed}", None),
        ("def train(a, seed: int = 8, *, b=1): pass\nfire.Fire(train)", "--seed {seed}", 8),
        (
            "class Inner:\n    seed: int = 6\nclass Args:\n    inner: Inner\nargs = tyro.cli(Args)",
            "",
            None,
        ),
    ],
)
def test_a_seed_option_is_spelled_as_its_parser_takes_it(
    source: str, run: str, default: int | None, tmp_path: Path
) -> None:
    best = scripts(tmp_path, {"train.py": source + "\n" + LOOP})[0]
    assert (best.run, best.default_seed) == (f"python train.py {run}".strip(), default)


@pytest.mark.parametrize(
    ("source", "told"),
    [
        (
            "torch.manual_seed(1337 + offset)",
            "it seeds itself with 1337 (train.py:2); the gate's seed does not reach it",
        ),
        ("seed_everything(42)", "it seeds itself with 42 (train.py:2)"),
        ("set_seed(read())", "it seeds itself (train.py:2)"),
        ("pass", "does not seed itself: the gate seeds Python, NumPy and torch from outside"),
        (
            "random_split(data, [9, 1], generator=torch.Generator().manual_seed(0))",
            "does not seed itself",
        ),
        ("generator.manual_seed(0)", "does not seed itself"),
        ("torch.cuda.manual_seed_all(3)", "it seeds itself with 3 (train.py:2)"),
    ],
)
def test_a_script_that_seeds_itself_is_said_to(source: str, told: str, tmp_path: Path) -> None:
    notes = scripts(tmp_path, {"train.py": "import torch\n" + source + "\n" + LOOP})[0].notes
    assert [note for note in notes if told in note]


@pytest.mark.parametrize(
    "start",
    [
        "from engine_pretrain import one_epoch",
        "import engine_pretrain",
        "from .engine_pretrain import (one_epoch)",
    ],
)
def test_a_loop_in_a_module_that_the_script_imports_counts(start: str, tmp_path: Path) -> None:
    files = {
        "main_mae.py": f"import torch\n{start}\n{MAIN}",
        "engine_pretrain.py": FUNCTION,
        "util.py": "import torch\n",
    }
    best = scripts(tmp_path, files)
    assert [script.path for script in best] == ["main_mae.py"]
    assert "imports engine_pretrain.py, which calls `.backward(`" in best[0].reasons
    (tmp_path / "engine_pretrain.py").write_text("import torch\n")
    assert training_scripts(tmp_path, walk(tmp_path)) == []


@pytest.mark.parametrize(
    ("readme", "source", "run", "env"),
    [
        (
            "```\ntorchrun --nproc_per_node=8 -m scripts.base_train -- --depth=4\n```\n",
            "import torch",
            "python -m scripts.base_train",
            {},
        ),
        (
            "```\npython -m scripts.base_train --depth 4\n```\n",
            "import torch",
            "python -m scripts.base_train --depth 4",
            {},
        ),
        ("", "from scripts.common import x", "python -m scripts.base_train", {}),
        ("", "from chat.common import x", "python scripts/base_train.py", {"PYTHONPATH": "."}),
        ("", "import scripts.of_another_package", "python scripts/base_train.py", {}),
        ("", "import scripts", "python scripts/base_train.py", {}),
    ],
)
def test_a_script_of_a_package_without_init_finds_its_package(
    readme: str, source: str, run: str, env: dict[str, str], tmp_path: Path
) -> None:
    files = {
        "README.md": readme,
        "scripts/base_train.py": f"{source}\n{LOOP}",
        "scripts/common.py": "x = 1\n",
        "chat/common.py": "x = 1\n",
    }
    best = scripts(tmp_path, files)[0]
    assert (best.run, best.working_directory, best.env) == (run, ".", env)


@pytest.mark.parametrize(
    ("source", "run"),
    [
        ("import sys\nname = sys.argv[1]", "python train.py net"),
        ("p.add_argument('net', nargs='?')", "python train.py net"),
        ("p.add_argument('--net')", "python train.py"),
    ],
)
def test_a_word_of_a_readmes_command_stays_if_the_script_takes_words_and_it_has_no_control_characters(
    source: str, run: str, tmp_path: Path
) -> None:
    files = {"README.md": "```\npython train.py net\n```\n", "train.py": f"{source}\n{LOOP}"}
    assert scripts(tmp_path, files)[0].run == run
    files["README.md"] = "```\npython train.py '\x1b[0m' net\n```\n"
    assert scripts(tmp_path, files)[0].run == "python train.py"


def read_by(folder: Path, files: dict[str, str]) -> set[str]:
    """The files that `init` takes for data of the training among `files`."""
    best = scripts(folder, files)[0]
    read = training_reads(walk(folder), ".", best.named)
    return {path for path in files if read(path)}


@pytest.mark.parametrize(
    "writes",
    [
        "torch.onnx.export(model, torch.randn(1, 3), 'out.onnx')",
        "torch.onnx.export(model, x, NAME)",
        "torch.save({'a': x}, 'out.bin')",
    ],
)
def test_what_the_script_writes_is_no_data(writes: str, tmp_path: Path) -> None:
    files = {
        "out.onnx": "1",
        "out.bin": "1",
        "in.bin": "1",
        "train.py": f"NAMES = ['in.bin', 'out.onnx']\n{writes}\n{LOOP}",
    }
    assert read_by(tmp_path, files) == {"in.bin"}


def _notebook(text: str, kernel: str = "python3") -> str:
    cells = [
        {"cell_type": "markdown", "source": LOOP},
        {"cell_type": "code", "source": text.splitlines(True)},
    ]
    return json.dumps(
        {"cells": cells, "metadata": {"kernelspec": {"display_name": "x", "name": kernel}}}
    )


def test_a_notebook_that_trains_is_executed_and_a_script_goes_first(tmp_path: Path) -> None:
    files = {
        "nb/fit it.ipynb": _notebook(LOOP),
        "nb/plot.ipynb": _notebook("import torch\n"),
        "nb/train.ipynb": "{",
    }
    (best,) = scripts(tmp_path, files)
    assert (best.run, best.working_directory) == ("jupyter execute 'nb/fit it.ipynb'", ".")
    assert [note for note in best.notes if note.startswith("it does not seed itself")]
    assert (
        scripts(tmp_path, {"nb/fit it.ipynb": _notebook(LOOP, "mine")})[0].run
        == "jupyter execute --kernel_name=python3 'nb/fit it.ipynb'"
    )
    assert [item.path for item in scripts(tmp_path, {"train.py": LOOP})] == [
        "train.py",
        "nb/fit it.ipynb",
    ]


def test_a_file_that_is_not_here_and_a_data_folder_without_a_default_are_named(
    tmp_path: Path,
) -> None:
    files = {
        "train.py": "x = torch.load('data.pt')\nopen('model.pt', 'wb')\nopen('model.pt', 'rb')\n"
        + LOOP
    }
    assert [
        note
        for note in scripts(tmp_path, files)[0].notes
        if note.startswith("it opens data.pt, not found here")
    ]
    timm = {"train.py": SEED + "p.add_argument('--data-dir', metavar='DIR')\n" + FUNCTION + MAIN}
    assert scripts(tmp_path, timm)[0].missing == ("--data-dir",)


def test_a_preparation_that_downloads_is_named_and_not_run(tmp_path: Path) -> None:
    best = scripts(tmp_path, NANOGPT)[0]
    assert [
        note for note in best.notes if "README.md runs `python data/tiny/prepare.py` first" in note
    ]
    (tmp_path / "data/tiny/train.bin").write_bytes(b"1")
    assert not [
        note for note in training_scripts(tmp_path, walk(tmp_path))[0].notes if "prepare.py" in note
    ]


def test_a_script_that_names_a_file_beside_itself_runs_in_its_own_folder(tmp_path: Path) -> None:
    files = {"a/train.py": LOOP + "read('points.csv')\n", "a/points.csv": "1"}
    best = scripts(tmp_path, files)[0]
    assert (best.run, best.working_directory) == ("python train.py", "a")
    elsewhere = scripts(tmp_path, {"points.csv": "1"})[0]
    assert (elsewhere.run, elsewhere.working_directory) == ("python a/train.py", ".")


def test_data_is_what_the_script_names_and_not_what_a_package_brings(tmp_path: Path) -> None:
    files = {
        "timm/__init__.py": "", "timm/data/__init__.py": "", "timm/data/_info/labels.txt": "a", "other/x.csv": "1", "names.txt": "x",
        "corpus/a.txt": "1", "data/train.bin": "1", "train.py": "p.add_argument('-i', default='names.txt')\nr('./corpus/a.txt')\n" + LOOP,
    }  # fmt: skip
    assert read_by(tmp_path, files) == {"names.txt", "corpus/a.txt", "data/train.bin"}


def test_source_that_is_nested_too_deep_and_numbers_that_are_too_long_end_nothing(
    tmp_path: Path,
) -> None:
    deep = "x" + ".a" * 2_000 + "()\n"
    files = {
        "train.py": LOOP + deep,
        "run.py": f"@hydra.main()\ndef main(c): pass\ntorch.manual_seed(0x{'f' * 6_000})\n" + LOOP,
    }
    scripts(tmp_path, {**files, "config.yaml": f"seed: {'1' * 6_000}\n"})
