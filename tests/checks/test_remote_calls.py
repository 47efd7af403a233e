"""Which calls fetch from a hub, and whether each is pinned: each form with its pinned twin, and the many that are none of it."""

from __future__ import annotations

import ast

import pytest

from repro_gate.checks.remote_calls import LOOSE, PINNED, UNRESOLVED, RemoteCall, may_fetch, remote_calls

SHA = "5f0b8f0d4f6e6a3f2b1c0d9e8f7a6b5c4d3e2f1a"
HEAD = (
    "import datasets, timm, torch, transformers, huggingface_hub, os\n"
    "from datasets import load_dataset\nfrom peft import PeftModel, PeftConfig\n"
    "from transformers import AutoModel, AutoTokenizer, pipeline\nfrom huggingface_hub import hf_hub_download, snapshot_download\n"
    "from diffusers import DiffusionPipeline\nfrom sentence_transformers import CrossEncoder, SentenceTransformer\n"
    "from tokenizers import Tokenizer\nfrom pathlib import Path\n"
)


def calls(source: str, local: frozenset[str] = frozenset(), head: str = HEAD) -> tuple[RemoteCall, ...]:
    """The remote calls of a module that begins with the usual imports."""
    found = remote_calls(ast.parse(head + source), lambda name: name in local)
    assert found is not None
    return found


def states(source: str, local: frozenset[str] = frozenset()) -> list[str]:
    """The states of the module's remote calls."""
    return [item.state for item in calls(source, local)]


@pytest.mark.parametrize(
    ("loose", "pinned"),
    [
        ("load_dataset('glue', 'mrpc')", "load_dataset('glue', 'mrpc', revision='SHA')"),
        ("load_dataset(path='org/name')", "load_dataset(path='org/name', revision='SHA')"),
        ("datasets.load_dataset('org/name', revision='main')", "datasets.load_dataset('org/name', revision='SHA')"),
        ("datasets.load_dataset_builder('org/name')", "datasets.load_dataset_builder('org/name', revision='SHA')"),
        ("AutoModel.from_pretrained('gpt2')", "AutoModel.from_pretrained('gpt2', revision='SHA')"),
        ("transformers.AutoModel.from_pretrained('gpt2')", "transformers.AutoModel.from_pretrained('gpt2', revision='SHA')"),
        ("AutoModel.from_pretrained('gpt2', revision=None)", "REV = 'SHA'\nAutoModel.from_pretrained('gpt2', revision=REV)"),
        ("AutoModel.from_pretrained('gpt2', revision='v1.0')", "AutoModel.from_pretrained('gpt2', revision='SHA')"),
        ("AutoModel.from_pretrained('gpt2', revision='5f0b8f0')", "kw = dict(revision='SHA')\nAutoModel.from_pretrained('gpt2', **kw)"),
        ("kw = {'revision': 'main'}\nAutoModel.from_pretrained('gpt2', **kw)", "AutoModel.from_pretrained('gpt2', **{'revision': 'SHA'})"),
        ("AutoTokenizer.from_pretrained(pretrained_model_name_or_path='a/b')", "AutoTokenizer.from_pretrained('a/b', revision='SHA')"),
        ("PeftModel.from_pretrained(model, 'a/lora')", "PeftModel.from_pretrained(model, 'a/lora', revision='SHA')"),
        ("PeftConfig.from_pretrained('a/lora')", "PeftConfig.from_pretrained('a/lora', revision='SHA')"),
        ("DiffusionPipeline.from_pretrained('a/sd')", "DiffusionPipeline.from_pretrained('a/sd', revision='SHA')"),
        ("Tokenizer.from_pretrained('bert-base-cased')", "Tokenizer.from_pretrained('bert-base-cased', revision='SHA')"),
        ("pipeline('text-generation', model='gpt2')", "pipeline('text-generation', model='gpt2', revision='SHA')"),
        ("pipeline('text-generation', 'gpt2')", "pipeline('text-generation', 'gpt2', revision='SHA')"),
        ("snapshot_download('a/b')", "snapshot_download('a/b', revision='SHA')"),
        ("hf_hub_download(repo_id='a/b', filename='x')", "hf_hub_download(repo_id='a/b', filename='x', revision='SHA')"),
        ("huggingface_hub.HfApi().snapshot_download('a/b')", "huggingface_hub.HfApi().snapshot_download('a/b', revision='SHA')"),
        ("SentenceTransformer('all-MiniLM-L6-v2')", "SentenceTransformer('all-MiniLM-L6-v2', revision='SHA')"),
        ("CrossEncoder('a/b')", "CrossEncoder('a/b', revision='SHA')"),
        ("torch.hub.load('pytorch/vision', 'resnet18')", "torch.hub.load('pytorch/vision:SHA', 'resnet18', skip_validation=True)"),
        ("torch.hub.load('pytorch/vision:v0.10.0', 'resnet18')", "torch.hub.load('pytorch/vision:SHA', 'resnet18', source='github')"),
        ("timm.create_model('hf_hub:timm/resnet50', pretrained=True)", "timm.create_model('hf_hub:timm/resnet50@SHA', pretrained=True)"),
        ("timm.create_model('hf-hub:timm/resnet50@main')", "timm.create_model('hf-hub:timm/resnet50@SHA')"),
        ("load_dataset('json', data_files='https://x.org/a.json')", "load_dataset('json', data_files='https://x.org/SHA/a.json')"),
        (
            "load_dataset('csv', data_files={'train': ['https://x.org/a.csv']})",
            "FILES = {'train': ['hf://datasets/a/b@SHA/a.csv']}\nload_dataset('csv', data_files=FILES)",
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
    ["x('hello')", "x('hello', return_tensors='pt')", "x.encode('hello')", "x.tokenize('hello')", "x['train']('hello')", "x().y('hello')"],
)
@pytest.mark.parametrize(
    "made",
    ["AutoTokenizer.from_pretrained('a/b', revision='SHA')", "load_dataset('a/b', revision='SHA')", "pipeline('t', 'a/b', revision='SHA')"],
)
def test_what_was_loaded_is_no_loader(made: str, use: str) -> None:
    assert states(f"x = {made}\ny = {use}".replace("SHA", SHA)) == [PINNED]
    assert states(f"{made}('hello')".replace("SHA", SHA)) == [PINNED]


def test_a_model_that_was_loaded_is_no_name_from_a_variable() -> None:
    source = f"model = AutoModel.from_pretrained('a/b', revision='{SHA}')\npipe = pipeline('text-generation', model=model)\npipe('hello')"
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
        "kw = {'revision': 'main'}\nkw['revision'] = args.revision\nAutoModel.from_pretrained('gpt2', **kw)",
        "kw = {**other, 'revision': 'main'}\nAutoModel.from_pretrained('gpt2', **kw)",
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
    (found,) = calls("AutoModel.from_pretrained(\n    'gpt2',\n    revision='main',\n)", head="from transformers import AutoModel\n")
    assert (found.line, found.text) == (2, 'AutoModel.from_pretrained("gpt2", revision="main")')
    assert (found.repository, found.problem) == ("gpt2", "a branch, a tag or a short commit can come to mean something else")
    (hub,) = calls("torch.hub.load('pytorch/vision:main', 'resnet18')")
    assert (hub.text, hub.repository) == ('torch.hub.load("pytorch/vision:main")', "pytorch/vision")
    (bare,) = calls("load_dataset('glue')")
    assert bare.problem == "it takes the branch `main` as it is today"
    (odd,) = calls("load_dataset('glue', revision='a\\nb\\x1b[31m')")
    assert odd.text == 'load_dataset("glue", revision="a\\nb\\x1b[31m")'


def test_calls_come_in_the_order_of_the_file() -> None:
    found = calls("load_dataset('a/a')\ndef f(x=load_dataset('a/b')):\n    load_dataset('a/c')\nload_dataset('a/d')")
    assert [item.repository for item in found] == ["a/a", "a/b", "a/c", "a/d"]


@pytest.mark.parametrize(
    ("source", "worth"),
    [
        (b"from transformers import AutoModel\nAutoModel.from_pretrained('x')", True),
        (b"import os, datasets\ndatasets.load_dataset('x')", True),
        (b"import torch\ntorch.hub.load('a/b', 'c')", True),
        (b"import timm\ntimm.create_model('hf_hub:a/b')", True),
        (b"import torch\nmodel = torch.nn.Linear(1, 1)", False),
        (b"# from_pretrained of a class of our own\nimport model", False),
        (b"import transformers", False),
        (b"from transformers import AutoModel\nmodel = wrap(AutoModel.from_pretrained('x'))", True),
        (b"from transformers import AutoModel\nself.model = AutoModel.from_pretrained('x')", True),
        (b"from transformers import AutoModel\nself.from_pretrained('x')", False),
        (b"from transformers import AutoModel\n# AutoModel.from_pretrained('x')", False),
        (b"from transformers import AutoModel\nname = 'from_pretrained'", False),
        (b"from transformers import AutoModel\ndef from_pretrained(name): ...", False),
        (b"import torch\ntorch.load('hub')", True),
        (b"import torch\ntorch.hub.set_dir('x')", False),
    ],
)
def test_a_file_without_import_and_word_is_not_parsed(source: bytes, worth: bool) -> None:
    assert may_fetch(source) is worth
    if not worth:
        assert remote_calls(ast.parse(source), lambda _: False) == ()
