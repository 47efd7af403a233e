"""Calls that fetch from a hub: each form with its pinned twin, the many that are none of it, and
files that nobody can trust."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from repro_gate.checks import revisions
from repro_gate.checks.revisions import (
    LOOSE,
    PINNED,
    UNRESOLVED,
    HubCall,
    find_revisions,
    hub_calls,
)

SHA = "e4a5f0c1b2d3948576a1b2c3d4e5f60718293a4b"
HEAD = (
    "import datasets, timm, torch, transformers, huggingface_hub, os\n"
    "from datasets import load_dataset\nfrom peft import PeftModel, PeftConfig\n"
    "from transformers import AutoModel, AutoTokenizer, pipeline\nfrom huggingface_hub import "
    "hf_hub_download, snapshot_download\n"
    "from diffusers import DiffusionPipeline\nfrom sentence_transformers import CrossEncoder, "
    "SentenceTransformer\n"
    "from tokenizers import Tokenizer\nfrom pathlib import Path\n"
)

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


Found = tuple[list[HubCall], list[str]]  # the calls, and what was not read
CALLED = "from datasets import load_dataset\nload_dataset('a/b', revision=None)\n"


def checkout(folder: Path, **files: str) -> tuple[Path, list[str]]:
    """A folder with these files (`__` stands for a slash), and their paths."""
    paths = [f"{name.replace('__', '/')}.py" for name in files]
    for path, content in zip(paths, files.values(), strict=True):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(content)
    return folder, paths


def found(folder: Path, *more: str, **files: str) -> Found:
    """What is found in a checkout of these files; `more` are further tracked paths."""
    root, paths = checkout(folder, **files)
    return find_revisions(root, [*paths, *more])


def of(result: Found, state: str) -> list[HubCall]:
    return [item for item in result[0] if item.state == state]


def calls(source: str, local: frozenset[str] = frozenset(), head: str = HEAD) -> list[HubCall]:
    """The hub calls of a file that begins with the usual imports."""
    return hub_calls("train.py", head + source, lambda name: name in local)


def states(source: str, local: frozenset[str] = frozenset()) -> list[str]:
    return [item.state for item in calls(source, local)]


def test_a_small_trainer_with_its_preparation(tmp_path: Path) -> None:
    result = found(
        tmp_path,
        data__openwebtext__prepare=PREPARE,
        model=MODEL,
        train="import torch\nfrom model import GPT\n",
    )
    assert [str(item) for item in of(result, LOOSE)] == [
        (
            'data/openwebtext/prepare.py:13: load_dataset("openwebtext"): it takes the branch '
            "`main` as it is today"
        )
    ]
    assert [(item.path, item.line) for item in of(result, UNRESOLVED)] == [("model.py", 11)]
    assert (of(result, PINNED), result[1]) == ([], [])
    pinned = found(
        tmp_path, prepare=PREPARE.replace('"openwebtext",', f'"openwebtext", revision="{SHA}",')
    )
    assert (len(of(pinned, LOOSE)), len(of(pinned, PINNED))) == (0, 1)


def test_an_example_script_that_takes_everything_from_arguments(tmp_path: Path) -> None:
    result = found(tmp_path, run_glue=RUN_GLUE)
    assert [item.text for item in of(result, LOOSE)] == ['load_dataset("nyu-mll/glue")']
    assert [item.line for item in of(result, UNRESOLVED)] == [22, 25, 26]
    bare = RUN_GLUE.replace('"nyu-mll/glue"', "data_args.dataset_name")
    assert of(found(tmp_path, run_glue=bare), LOOSE) == []


def test_a_finetuning_script_with_its_names_in_a_class(tmp_path: Path) -> None:
    result = found(tmp_path, finetune=FINETUNE)
    assert [item.text for item in of(result, LOOSE)] == [
        'AutoTokenizer.from_pretrained("meta-llama/Llama-2-7b-hf")',
        'LM.from_pretrained("meta-llama/Llama-2-7b-hf")',
        'ds.load_dataset("yahma/alpaca-cleaned")',
    ]
    twin = FINETUNE.replace("(CFG.base", f"(CFG.base, revision='{SHA}'").replace(
        'split="train"', f'split="train", revision="{SHA}"'
    )
    again = found(tmp_path, finetune=twin)
    assert ([item.text for item in of(again, LOOSE)], len(of(again, PINNED))) == ([], 3)


def test_vision_models_of_a_package_are_left_to_its_version(tmp_path: Path) -> None:
    result = found(tmp_path, vision=VISION)
    assert [item.text for item in of(result, LOOSE)] == [
        'torch.hub.load("facebookresearch/dino:main")',
        'timm.create_model("hf_hub:timm/eva02_large")',
    ]
    twin = VISION.replace("dino:main", f"dino:{SHA}").replace("eva02_large", f"eva02_large@{SHA}")
    assert len(of(found(tmp_path, vision=twin), PINNED)) == 2


def test_tests_and_documentation_are_left_out(tmp_path: Path) -> None:
    names = (
        "tests__data",
        "test_model",
        "model_test",
        "conftest",
        "docs__conf",
        "pkg__tests__x",
        "src__test_utils__x",
        "Docs__x",
    )
    result = found(tmp_path, **dict.fromkeys(names, PREPARE))
    assert result == ([], [])
    assert len(of(found(tmp_path, latest=PREPARE, contest=PREPARE), LOOSE)) == 2


def test_a_folder_of_the_checkout_or_declared_data_is_local(tmp_path: Path) -> None:
    source = (
        'from datasets import load_dataset\nload_dataset("corpora/wiki")\nload_dataset("books")\n'
    )
    assert len(of(found(tmp_path, train=source), LOOSE)) == 2
    root, paths = checkout(tmp_path, train=source)
    assert [
        item.repository for item in of(find_revisions(root, paths, ["corpora/wiki"]), LOOSE)
    ] == ["books"]
    (tmp_path / "books").mkdir()
    assert [item.repository for item in of(find_revisions(root, paths), LOOSE)] == ["corpora/wiki"]


def test_a_folder_beside_the_script_is_local(tmp_path: Path) -> None:
    source = 'from transformers import AutoModel\nAutoModel.from_pretrained("assets/bert")\n'
    assert len(of(found(tmp_path, pkg__train=source), LOOSE)) == 1
    (tmp_path / "pkg/assets/bert").mkdir(parents=True)
    assert of(found(tmp_path, pkg__train=source), LOOSE) == []


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (
            "from datasets import load_dataset\nload_dataset('a/b'",
            "cannot be parsed: '(' was never closed",
        ),
        (CALLED + "(" * 500 + ")" * 500, "cannot be parsed: too many nested parentheses"),
        (CALLED + "-" * 100_000 + "1", "cannot be parsed: "),
        (CALLED + "a" + ".a" * 100_000, "cannot be parsed: "),
        (
            "from datasets import load_dataset\n" + "#" * revisions.MAX_FILE_BYTES,
            "is larger than 1048576 bytes",
        ),
    ],
)
def test_what_cannot_be_parsed_is_named_and_the_rest_is_read(
    tmp_path: Path, content: str, why: str
) -> None:
    result = found(tmp_path, odd=content, prepare=PREPARE)
    assert len(result[1]) == 1
    assert result[1][0].startswith(f"odd.py: {why}")
    assert [item.path for item in of(result, LOOSE)] == ["prepare.py"]


def test_odd_escapes_and_comparisons_warn_nobody(tmp_path: Path) -> None:
    assert (
        len(
            of(
                found(
                    tmp_path,
                    train="from datasets import load_dataset\nx = '\\d' is "
                    "'a'\nload_dataset('a/b')",
                ),
                LOOSE,
            )
        )
        == 1
    )


def test_links_pipes_and_files_that_are_gone_are_not_read(tmp_path: Path) -> None:
    root, paths = checkout(tmp_path / "repository", prepare=PREPARE)
    (tmp_path / "outside.py").write_text(PREPARE)
    os.symlink(tmp_path / "outside.py", root / "link.py")
    os.mkfifo(root / "pipe.py")
    result = find_revisions(root, [*paths, "link.py", "pipe.py", "gone.py", "folder\0.py"])
    assert [item.path for item in of(result, LOOSE)] == ["prepare.py"]
    assert [line.partition(":")[0] for line in result[1]] == ["pipe.py"]


@pytest.mark.parametrize("filler", ["\n", " \n", "import ", "load(", "a", " ", "from x import y\n"])
def test_a_long_file_costs_no_time(filler: str, tmp_path: Path) -> None:
    """Patterns that look again at every blank would take minutes here."""
    text = filler * ((revisions.MAX_FILE_BYTES - 100) // len(filler))
    began = time.monotonic()
    found(tmp_path, long=text, late=text + "\nimport torch\n")
    assert time.monotonic() - began < 20


def test_limits_on_number_and_size_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(revisions, "MAX_FILES", 2)
    result = found(tmp_path, a=PREPARE, b=PREPARE, c=PREPARE)
    assert (len(of(result, LOOSE)), result[1]) == (
        2,
        ["1 files beyond the first 2 files and 3 MiB of code (c.py, …)"],
    )
    monkeypatch.setattr(revisions, "MAX_PARSED_BYTES", len(PREPARE) + 1)
    result = found(tmp_path, a=PREPARE, b=PREPARE)
    assert result[1] == ["1 files beyond the first 2 files and 0 MiB of code (b.py, …)"]
    assert [item.path for item in of(result, LOOSE)] == ["a.py"]


def test_what_the_runs_opened_is_parsed_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(revisions, "MAX_PARSED_BYTES", len(PREPARE) + 1)
    root, paths = checkout(tmp_path, a=PREPARE, b=PREPARE)
    assert [item.path for item in of(find_revisions(root, paths, first={"b.py"}), LOOSE)] == [
        "b.py"
    ]


def test_a_file_without_a_call_is_never_parsed(tmp_path: Path) -> None:
    quiet = (
        "import torch",
        "from transformers import AutoModel",
        "from datasets import x\n# load_dataset('a/b')",
    )
    result = found(
        tmp_path,
        **{f"quiet{number}": f"{text}\n(" for number, text in enumerate(quiet)},
        prepare=PREPARE,
    )
    assert (result[1], len(result[0])) == ([], 1)


@pytest.mark.parametrize(
    "source",
    [
        "from transformers import AutoModel as A\nA.from_pretrained('a/b')",
        "import transformers as t\nt.AutoModel.from_pretrained('a/b')",
        "import transformers\nload = transformers.AutoModel.from_pretrained\nload('a/b')",
        (
            "def f():\n    from transformers import AutoModel\n    return "
            "AutoModel.from_pretrained('a/b')"
        ),
        (
            "import transformers\nclass Mine(transformers.AutoModel):\n    "
            "pass\nMine.from_pretrained('a/b')"
        ),
        (
            "import transformers\nNAME = 'a/b'\nOTHER = "
            "NAME\ntransformers.AutoModel.from_pretrained(OTHER)"
        ),
        (
            "import transformers\nclass CFG:\n    name = "
            "'a/b'\ntransformers.AutoModel.from_pretrained(CFG.name)"
        ),
        "import huggingface_hub\napi = huggingface_hub.HfApi()\napi.snapshot_download('a/b')",
    ],
)
def test_imports_aliases_subclasses_and_constants_of_the_file_are_followed(source: str) -> None:
    assert [(item.state, item.repository) for item in calls(source, head="")] == [(LOOSE, "a/b")]


@pytest.mark.parametrize(
    "source",
    [
        "from elsewhere import load_dataset\nload_dataset('a/b')",
        "from .data import load_dataset\nload_dataset('a/b')",
        "def load_dataset(name): ...\nload_dataset('a/b')",
        "a = b\nb = a\na.from_pretrained('a/b')",
    ],
)
def test_a_function_of_the_same_name_from_elsewhere_is_none_of_the_hubs(source: str) -> None:
    assert calls(source, head="") == []


@pytest.mark.parametrize(
    ("loose", "pinned"),
    [
        ("load_dataset('glue', 'mrpc')", "load_dataset('glue', 'mrpc', revision='SHA')"),
        ("load_dataset(path='org/name')", "load_dataset(path='org/name', revision='SHA')"),
        (
            "datasets.load_dataset('org/name', revision='main')",
            "datasets.load_dataset('org/name', revision='SHA')",
        ),
        (
            "datasets.load_dataset_builder('org/name')",
            "datasets.load_dataset_builder('org/name', revision='SHA')",
        ),
        ("AutoModel.from_pretrained('gpt2')", "AutoModel.from_pretrained('gpt2', revision='SHA')"),
        (
            "transformers.AutoModel.from_pretrained('gpt2')",
            "transformers.AutoModel.from_pretrained('gpt2', revision='SHA')",
        ),
        (
            "AutoModel.from_pretrained('gpt2', revision=None)",
            "REV = 'SHA'\nAutoModel.from_pretrained('gpt2', revision=REV)",
        ),
        (
            "AutoModel.from_pretrained('gpt2', revision='v1.0')",
            "AutoModel.from_pretrained('gpt2', revision='SHA')",
        ),
        (
            "AutoModel.from_pretrained('gpt2', revision='5f0b8f0')",
            "AutoModel.from_pretrained('gpt2', revision='SHA')",
        ),
        (
            "AutoTokenizer.from_pretrained(pretrained_model_name_or_path='a/b')",
            "AutoTokenizer.from_pretrained('a/b', revision='SHA')",
        ),
        (
            "PeftModel.from_pretrained(model, 'a/lora')",
            "PeftModel.from_pretrained(model, 'a/lora', revision='SHA')",
        ),
        (
            "PeftConfig.from_pretrained('a/lora')",
            "PeftConfig.from_pretrained('a/lora', revision='SHA')",
        ),
        (
            "DiffusionPipeline.from_pretrained('a/sd')",
            "DiffusionPipeline.from_pretrained('a/sd', revision='SHA')",
        ),
        (
            "Tokenizer.from_pretrained('bert-base-cased')",
            "Tokenizer.from_pretrained('bert-base-cased', revision='SHA')",
        ),
        (
            "pipeline('text-generation', model='gpt2')",
            "pipeline('text-generation', model='gpt2', revision='SHA')",
        ),
        (
            "pipeline('text-generation', 'gpt2')",
            "pipeline('text-generation', 'gpt2', revision='SHA')",
        ),
        ("snapshot_download('a/b')", "snapshot_download('a/b', revision='SHA')"),
        (
            "hf_hub_download(repo_id='a/b', filename='x')",
            "hf_hub_download(repo_id='a/b', filename='x', revision='SHA')",
        ),
        (
            "huggingface_hub.HfApi().snapshot_download('a/b')",
            "huggingface_hub.HfApi().snapshot_download('a/b', revision='SHA')",
        ),
        (
            "SentenceTransformer('all-MiniLM-L6-v2')",
            "SentenceTransformer('all-MiniLM-L6-v2', revision='SHA')",
        ),
        ("CrossEncoder('a/b')", "CrossEncoder('a/b', revision='SHA')"),
        (
            "torch.hub.load('pytorch/vision', 'resnet18')",
            "torch.hub.load('pytorch/vision:SHA', 'resnet18', skip_validation=True)",
        ),
        (
            "torch.hub.load('pytorch/vision:v0.10.0', 'resnet18')",
            "torch.hub.load('pytorch/vision:SHA', 'resnet18', source='github')",
        ),
        (
            "timm.create_model('hf_hub:timm/resnet50', pretrained=True)",
            "timm.create_model('hf_hub:timm/resnet50@SHA', pretrained=True)",
        ),
        (
            "timm.create_model('hf-hub:timm/resnet50@main')",
            "timm.create_model('hf-hub:timm/resnet50@SHA')",
        ),
        (
            "load_dataset('json', data_files='https://x.org/a.json')",
            "load_dataset('json', data_files='https://x.org/SHA/a.json')",
        ),
        (
            "load_dataset('csv', data_files={'train': ['https://x.org/a.csv']})",
            (
                "FILES = {'train': ['hf://datasets/a/b@SHA/a.csv']}\nload_dataset('csv', "
                "data_files=FILES)"
            ),
        ),
    ],
)
def test_each_form_is_found_and_its_pinned_twin_passes(loose: str, pinned: str) -> None:
    assert states(loose) == [LOOSE]
    twin = calls(pinned.replace("SHA", SHA))
    assert all(item.state != LOOSE for item in twin)
    if "data_files" not in pinned:
        assert [item.state for item in twin] == [PINNED]


@pytest.mark.parametrize(
    "use",
    [
        "x('hello')",
        "x('hello', return_tensors='pt')",
        "x.encode('hello')",
        "x.tokenize('hello')",
        "x['train']('hello')",
        "x().y('hello')",
    ],
)
@pytest.mark.parametrize(
    "made",
    [
        "AutoTokenizer.from_pretrained('a/b', revision='SHA')",
        "load_dataset('a/b', revision='SHA')",
        "pipeline('t', 'a/b', revision='SHA')",
    ],
)
def test_what_was_loaded_is_no_loader(made: str, use: str) -> None:
    assert states(f"x = {made}\ny = {use}".replace("SHA", SHA)) == [PINNED]
    assert states(f"{made}('hello')".replace("SHA", SHA)) == [PINNED]


def test_a_model_that_was_loaded_is_no_name_from_a_variable() -> None:
    source = (
        f"model = AutoModel.from_pretrained('a/b', revision='{SHA}')\npipe = "
        "pipeline('text-generation', model=model)\npipe('hello')"
    )
    assert states(source) == [PINNED]


@pytest.mark.parametrize(
    "source",
    [
        "AutoModel.from_pretrained('./out')",
        "AutoModel.from_pretrained('/data/llama')",
        "AutoModel.from_pretrained('../llama')",
        "AutoModel.from_pretrained('~/llama')",
        "AutoModel.from_pretrained('C:\\\\models\\\\llama')",
        "AutoModel.from_pretrained('out/llama/final')",
        "AutoModel.from_pretrained('output/final')",
        "AutoModel.from_pretrained('checkpoints/best')",
        "AutoModel.from_pretrained('distilbert-imdb/checkpoint-500')",
        "AutoModel.from_pretrained('run1/model.safetensors')",
        "AutoModel.from_pretrained('path-to-your-trained-model')",
        "AutoModel.from_pretrained('your-name/your-model')",
        "AutoModel.from_pretrained(Path('a') / 'b')",
        "AutoModel.from_pretrained(os.path.join('a', 'b'))",
        "AutoModel.from_pretrained('')",
        "AutoModel.from_pretrained('gpt2', local_files_only=True)",
        "model.save_pretrained('distilled')\nAutoModel.from_pretrained('distilled')",
        "snapshot_download(repo, local_dir='llama')\nAutoModel.from_pretrained('llama')",
        "transformers.TrainingArguments('imdb-run')\nAutoModel.from_pretrained('imdb-run/best')",
        "AutoModel.from_config(config)",
        "load_dataset('json', data_files='train.json')",
        "load_dataset('csv', data_files={'train': 'a.csv', 'test': ['b.csv']})",
        "load_dataset('imagefolder', data_dir='pics')",
        "load_dataset('text', data_files=files)",
        "load_dataset('my_dataset.py')",
        "load_dataset('./my_dataset')",
        "datasets.load_from_disk('org/name')",
        "pipeline('sentiment-analysis')",
        "pipeline('text-generation', model=AutoModel.from_config(config))",
        "torch.hub.load('.', 'custom', source='local')",
        "torch.hub.load('owner/repo', 'custom', source='local')",
        "torch.load('model.pt')",
        "timm.create_model('resnet50', pretrained=True)",
        "timm.create_model('hf_hub_like', pretrained=True)",
        "torchvision.models.resnet50(weights='DEFAULT')",
        "GPT.from_pretrained('gpt2')",
        "model.load_dataset('org/name')",
        "print('AutoModel.from_pretrained(\"gpt2\")')",
    ],
)
def test_what_fetches_nothing_is_not_flagged(source: str) -> None:
    assert LOOSE not in states(source)


@pytest.mark.parametrize(
    "source",
    [
        "AutoModel.from_pretrained(args.model)",
        "AutoModel.from_pretrained(args.model, revision='main')",
        "AutoModel.from_pretrained(NAMES['small'])",
        "AutoModel.from_pretrained(f'gpt2-{size}')",
        "AutoModel.from_pretrained('gpt2', revision=args.revision)",
        "AutoModel.from_pretrained('gpt2', **kwargs)",
        "AutoModel.from_pretrained(*args)",
        "kw = {'revision': 'main'}\nAutoModel.from_pretrained('gpt2', **kw)",
        "def f(name='a/b'):\n    AutoModel.from_pretrained(name)",
        "for name in ('a', 'b'):\n    AutoModel.from_pretrained(name)",
        "name = 'a/b'\nname = name + '/c'\nAutoModel.from_pretrained(name)",
        "class A:\n    name = 'a/b'\nself.name = args.name\nAutoModel.from_pretrained(A.name)",
        "load_dataset(data_args.dataset_name, data_args.config)",
        "torch.hub.load(repo, 'resnet18')",
    ],
)
def test_what_a_variable_says_is_left_open(source: str) -> None:
    assert states(source) == [UNRESOLVED]


def test_a_folder_of_the_checkout_is_no_repository() -> None:
    assert states("AutoModel.from_pretrained('assets/bert')") == [LOOSE]
    assert states("AutoModel.from_pretrained('assets/bert')", frozenset({"assets/bert"})) == []


def test_a_call_is_told_as_it_is_written() -> None:
    (found,) = calls(
        "AutoModel.from_pretrained(\n    'gpt2',\n    revision='main',\n)",
        head="from transformers import AutoModel\n",
    )
    assert (found.line, found.text) == (2, 'AutoModel.from_pretrained("gpt2", revision="main")')
    assert (found.repository, found.problem) == (
        "gpt2",
        "a branch, a tag or a short commit can come to mean something else",
    )
    (hub,) = calls("torch.hub.load('pytorch/vision:main', 'resnet18')")
    assert (hub.text, hub.repository) == ('torch.hub.load("pytorch/vision:main")', "pytorch/vision")
    (bare,) = calls("load_dataset('glue')")
    assert bare.problem == "it takes the branch `main` as it is today"
    (odd,) = calls("load_dataset('glue', revision='a\\nb\\x1b[31m')")
    assert odd.text == 'load_dataset("glue", revision="a\\nb\\x1b[31m")'


def test_calls_come_in_the_order_of_the_file() -> None:
    found = calls(
        "load_dataset('a/a')\ndef f(x=load_dataset('a/b')):\n    "
        "load_dataset('a/c')\nload_dataset('a/d')"
    )
    assert [item.repository for item in found] == ["a/a", "a/b", "a/c", "a/d"]
