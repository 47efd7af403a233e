"""Datasets and models that a checkout's code fetches without naming a commit: sources in the style of real training repositories, and files
that a stranger sent."""

from __future__ import annotations

import ast
import os
from pathlib import Path

import pytest

from repro_gate.checks import revisions
from repro_gate.checks.revisions import Revisions, find_revisions

SHA = "e4a5f0c1b2d3948576a1b2c3d4e5f60718293a4b"

PREPARE = """
import os
from tqdm import tqdm
import numpy as np
import tiktoken
from datasets import load_dataset # huggingface datasets

num_proc = 8
enc = tiktoken.get_encoding("gpt2")

if __name__ == '__main__':
    # takes 54GB in huggingface .cache dir, about 8M documents (8,013,769)
    dataset = load_dataset("openwebtext", num_proc=num_proc)
    split_dataset = dataset["train"].train_test_split(test_size=0.0005, seed=2357, shuffle=True)
"""

MODEL = """
import torch
import torch.nn as nn

class GPT(nn.Module):
    @classmethod
    def from_pretrained(cls, model_type, override_args=None):
        assert model_type in {'gpt2', 'gpt2-medium', 'gpt2-large', 'gpt2-xl'}
        from transformers import GPT2LMHeadModel
        print("loading weights from pretrained gpt: %s" % model_type)
        model_hf = GPT2LMHeadModel.from_pretrained(model_type)
        return model_hf

if __name__ == "__main__":
    model = GPT.from_pretrained("gpt2")
    checkpoint = torch.load("out/ckpt.pt", map_location="cpu")
"""

RUN_GLUE = """
from dataclasses import dataclass, field
from typing import Optional
import datasets
import evaluate
from datasets import load_dataset
import transformers
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer, HfArgumentParser, TrainingArguments

@dataclass
class ModelArguments:
    model_name_or_path: str = field(metadata={"help": "Path to pretrained model or model identifier"})
    model_revision: str = field(default="main", metadata={"help": "The specific model version to use"})

def main():
    parser = HfArgumentParser((ModelArguments, TrainingArguments))
    model_args, training_args = parser.parse_args_into_dataclasses()
    raw_datasets = load_dataset("nyu-mll/glue", data_args.task_name, cache_dir=model_args.cache_dir, token=model_args.token)
    data_files = {"train": data_args.train_file, "validation": data_args.validation_file}
    if data_args.train_file.endswith(".csv"):
        raw_datasets = load_dataset("csv", data_files=data_files, cache_dir=model_args.cache_dir)
    config = AutoConfig.from_pretrained(
        model_args.config_name if model_args.config_name else model_args.model_name_or_path,
        num_labels=2, revision=model_args.model_revision)
    tokenizer = AutoTokenizer.from_pretrained(model_args.model_name_or_path, revision=model_args.model_revision)
    model = AutoModelForSequenceClassification.from_pretrained(model_args.model_name_or_path, config=config)
    metric = evaluate.load("glue", data_args.task_name)
"""

FINETUNE = """
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import (
    AutoModelForCausalLM as LM,
    AutoTokenizer,
)
import datasets as ds

class CFG:
    base = "meta-llama/Llama-2-7b-hf"
    out = "llama-lora"

def train():
    tokenizer = AutoTokenizer.from_pretrained(CFG.base)
    model = LM.from_pretrained(CFG.base, torch_dtype=torch.bfloat16, device_map="auto")
    data = ds.load_dataset("yahma/alpaca-cleaned", split="train")
    model = get_peft_model(model, LoraConfig(r=8))
    model.save_pretrained(CFG.out)
    merged = PeftModel.from_pretrained(model, CFG.out)
    best = LM.from_pretrained("outputs/checkpoint-300")

if __name__ == "__main__":
    train()
"""

VISION = """
import timm, torch, torchvision

backbone = torch.hub.load("facebookresearch/dino:main", "dino_vits16")
resnet = torchvision.models.resnet50(weights=torchvision.models.ResNet50_Weights.DEFAULT)
vit = timm.create_model("vit_base_patch16_224", pretrained=True)
teacher = timm.create_model("hf_hub:timm/eva02_large", pretrained=True)
"""


CALLED = "from datasets import load_dataset\nload_dataset('a/b', revision=None)\n"
NO_CALLS = (
    "x = 1",
    "# load_dataset('a/b')",
    'x = """\n    >>> load_dataset(1)\n    ... load_dataset(2)\n"""',
    "class A:\n    def from_pretrained(cls): ...",
    "class B:\n    def load(cls):\n        return super().from_pretrained(cls)",
    "class C:\n    def load(cls):\n        return cls.from_pretrained('a')",
    "my_pipeline(1)",
    "read = load_dataset",
)


def checkout(folder: Path, **files: str) -> tuple[Path, list[str]]:
    """A folder with these files (`__` stands for a slash), and their paths."""
    paths = [f"{name.replace('__', '/')}.py" for name in files]
    for path, content in zip(paths, files.values(), strict=True):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(content)
    return folder, paths


def found(folder: Path, *more: str, **files: str) -> Revisions:
    """What is found in a checkout of these files; `more` are further tracked paths."""
    root, paths = checkout(folder, **files)
    return find_revisions(root, [*paths, *more])


def test_a_small_trainer_with_its_preparation(tmp_path: Path) -> None:
    result = found(tmp_path, data__openwebtext__prepare=PREPARE, model=MODEL, train="import torch\nfrom model import GPT\n")
    assert [str(item) for item in result.loose] == [
        'data/openwebtext/prepare.py:13: load_dataset("openwebtext"): it takes the branch `main` as it is today'
    ]
    assert [(item.path, item.call.line) for item in result.unresolved] == [("model.py", 11)]
    assert (result.files, result.pinned, result.unread) == (3, (), ())
    pinned = found(tmp_path, prepare=PREPARE.replace('"openwebtext",', f'"openwebtext", revision="{SHA}",'))
    assert (len(pinned.loose), len(pinned.pinned)) == (0, 1)


def test_an_example_script_that_takes_everything_from_arguments(tmp_path: Path) -> None:
    result = found(tmp_path, run_glue=RUN_GLUE)
    assert [item.call.text for item in result.loose] == ['load_dataset("nyu-mll/glue")']
    assert [item.call.line for item in result.unresolved] == [22, 25, 26]
    bare = RUN_GLUE.replace('"nyu-mll/glue"', "data_args.dataset_name")
    assert found(tmp_path, run_glue=bare).loose == ()


def test_a_finetuning_script_with_its_names_in_a_class(tmp_path: Path) -> None:
    result = found(tmp_path, finetune=FINETUNE)
    assert [item.call.text for item in result.loose] == [
        'AutoTokenizer.from_pretrained("meta-llama/Llama-2-7b-hf")',
        'LM.from_pretrained("meta-llama/Llama-2-7b-hf")',
        'ds.load_dataset("yahma/alpaca-cleaned")',
    ]
    twin = FINETUNE.replace("(CFG.base", f"(CFG.base, revision='{SHA}'").replace('split="train"', f'split="train", revision="{SHA}"')
    again = found(tmp_path, finetune=twin)
    assert ([item.call.text for item in again.loose], len(again.pinned)) == ([], 3)


def test_vision_models_of_a_package_are_left_to_its_version(tmp_path: Path) -> None:
    result = found(tmp_path, vision=VISION)
    assert [item.call.text for item in result.loose] == [
        'torch.hub.load("facebookresearch/dino:main")',
        'timm.create_model("hf_hub:timm/eva02_large")',
    ]
    twin = VISION.replace("dino:main", f"dino:{SHA}").replace("eva02_large", f"eva02_large@{SHA}")
    assert len(found(tmp_path, vision=twin).pinned) == 2


def test_tests_and_documentation_are_left_out(tmp_path: Path) -> None:
    names = ("tests__data", "test_model", "model_test", "conftest", "docs__conf", "pkg__tests__x", "src__test_utils__x", "Docs__x")
    result = found(tmp_path, **dict.fromkeys(names, PREPARE))
    assert (result.files, result.loose) == (0, ())
    assert len(found(tmp_path, latest=PREPARE, contest=PREPARE).loose) == 2


def test_a_folder_of_the_checkout_or_declared_data_is_local(tmp_path: Path) -> None:
    source = 'from datasets import load_dataset\nload_dataset("corpora/wiki")\nload_dataset("books")\n'
    assert len(found(tmp_path, train=source).loose) == 2
    assert [item.call.repository for item in found(tmp_path, "corpora/wiki/data.txt", train=source).loose] == ["books"]
    root, paths = checkout(tmp_path, train=source)
    assert [item.call.repository for item in find_revisions(root, paths, ["corpora/wiki"]).loose] == ["books"]
    (tmp_path / "books").mkdir()
    assert [item.call.repository for item in find_revisions(root, paths).loose] == ["corpora/wiki"]


def test_a_folder_beside_the_script_is_local(tmp_path: Path) -> None:
    source = 'from transformers import AutoModel\nAutoModel.from_pretrained("assets/bert")\n'
    assert len(found(tmp_path, pkg__train=source).loose) == 1
    assert found(tmp_path, "pkg/assets/bert/config.json", pkg__train=source).loose == ()


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("from datasets import load_dataset\nload_dataset('a/b'", "no Python of this version: '(' was never closed, line 2"),
        (CALLED + "(" * 500 + ")" * 500, "no Python of this version: too many nested parentheses, line 3"),
        (CALLED + "-" * 100_000 + "1", "cannot be parsed: "),
        (CALLED + "a" + ".a" * 100_000, "cannot be parsed: RecursionError"),
        ("# coding: nonsense\n" + CALLED, "no Python of this version: unknown encoding: nonsense"),
        ("from datasets import load_dataset\n" + "#" * revisions.MAX_FILE_BYTES, "is larger than 1 MiB"),
    ],
)
def test_what_cannot_be_parsed_is_named_and_the_rest_is_read(tmp_path: Path, content: str, why: str) -> None:
    result = found(tmp_path, odd=content, prepare=PREPARE)
    assert len(result.unread) == 1
    assert result.unread[0].startswith(f"odd.py: {why}")
    assert [item.path for item in result.loose] == ["prepare.py"]


def test_escapes_and_comparisons_of_a_stranger_warn_nobody(tmp_path: Path) -> None:
    assert len(found(tmp_path, train="from datasets import load_dataset\nx = '\\d' is 'a'\nload_dataset('a/b')").loose) == 1


def test_links_pipes_and_files_that_are_gone_are_not_read(tmp_path: Path) -> None:
    root, paths = checkout(tmp_path / "repository", prepare=PREPARE)
    (tmp_path / "outside.py").write_text(PREPARE)
    os.symlink(tmp_path / "outside.py", root / "link.py")
    os.mkfifo(root / "pipe.py")
    result = find_revisions(root, [*paths, "link.py", "pipe.py", "gone.py", "folder\0.py"])
    assert [item.path for item in result.loose] == ["prepare.py"]
    assert [line.partition(":")[0] for line in result.unread] == ["folder\0.py", "pipe.py"]


def test_limits_on_number_and_size_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(revisions, "MAX_FILES", 2)
    result = found(tmp_path, a=PREPARE, b=PREPARE, c=PREPARE)
    assert (len(result.loose), result.unread) == (2, ("1 files beyond the first 2",))
    monkeypatch.setattr(revisions, "MAX_PARSED_BYTES", len(PREPARE) + 1)
    result = found(tmp_path, a=PREPARE, b=PREPARE)
    assert result.unread == ("1 files with such calls beyond the first 0 MiB of code (b.py, …)",)
    assert [item.path for item in result.loose] == ["a.py"]


def test_what_the_runs_opened_is_parsed_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(revisions, "MAX_PARSED_BYTES", len(PREPARE) + 1)
    root, paths = checkout(tmp_path, a=PREPARE, b=PREPARE)
    assert [item.path for item in find_revisions(root, paths, first={"b.py"}).loose] == ["b.py"]


def test_a_file_without_a_call_by_a_known_name_is_never_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[bytes] = []

    def parse(source: bytes) -> ast.Module:
        parsed.append(source)
        return ast.Module([], [])

    monkeypatch.setattr(revisions.ast, "parse", parse)
    quiet = {f"quiet{number}": f"from datasets import load_dataset\nimport transformers\n{line}\n" for number, line in enumerate(NO_CALLS)}
    result = found(tmp_path, **quiet, prepare=PREPARE)
    assert (result.files, parsed) == (len(NO_CALLS) + 1, [PREPARE.encode()])
