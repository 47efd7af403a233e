"""What the names of a module stand for, without running it: imports, scopes, constants, and what cannot be told."""

from __future__ import annotations

import ast

import pytest

from repro_gate.checks.module_names import UNKNOWN, ModuleNames


def last_call(source: str) -> tuple[ModuleNames, ast.Call, object]:
    """The names of a module and its last call with its scope."""
    names = ModuleNames(ast.parse(source))
    call, scope = list(names.calls())[-1]
    return names, call, scope


def origins(source: str) -> set[str]:
    """What the function of the module's last call may be."""
    names, call, scope = last_call(source)
    return set(names.origins(call.func, scope))  # type: ignore[arg-type]


def value(source: str) -> object:
    """What the first argument of the module's last call stands for."""
    names, call, scope = last_call(source)
    return names.value(call.args[0], scope)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("source", "dotted"),
    [
        ("import datasets\ndatasets.load_dataset()", "datasets.load_dataset"),
        ("import datasets as d\nd.load_dataset()", "datasets.load_dataset"),
        ("from datasets import load_dataset as ld\nld()", "datasets.load_dataset"),
        ("import torch.hub\ntorch.hub.load()", "torch.hub.load"),
        ("from torch import hub\nhub.load()", "torch.hub.load"),
        ("import torch.hub as h\nh.load()", "torch.hub.load"),
        ("from datasets import *\nload_dataset()", "datasets.load_dataset"),
        ("def main():\n    from datasets import load_dataset\n    load_dataset()", "datasets.load_dataset"),
        ("from .hub import load\nload()", ".hub.load"),
        ("import datasets\nld = datasets.load_dataset\nld()", "datasets.load_dataset"),
        ("from huggingface_hub import HfApi\napi = HfApi()\napi.snapshot_download()", "huggingface_hub.HfApi.snapshot_download"),
        ("from transformers import Base\nclass Own(Base): pass\nOwn.from_pretrained()", "transformers.Base.from_pretrained"),
        ("from transformers import pipeline\npipeline = pipeline()", "transformers.pipeline"),
        ("try:\n    from a import f\nexcept ImportError:\n    f = None\nf()", "a.f"),
        ("try:\n    from a import f\nexcept ImportError:\n    def f(): raise\nf()", "a.f"),
        ("from a import f\nclass C:\n    def f(self):\n        return f()", "a.f"),
        ("from a import f\n@f()\ndef g(): pass", "a.f"),
    ],
)
def test_a_name_is_followed_to_its_import(source: str, dotted: str) -> None:
    assert origins(source) == {dotted}


@pytest.mark.parametrize(
    "source",
    [
        "load_dataset()",
        "def load_dataset(): pass\nload_dataset()",
        "from datasets import load_dataset\ndef load_dataset(): pass\nload_dataset()",
        "from datasets import load_dataset\ndef main(load_dataset):\n    load_dataset()",
        "def one():\n    from datasets import load_dataset\ndef two():\n    load_dataset()",
        "self.load_dataset()",
        "loaders['x'].load_dataset()",
        "class C:\n    from datasets import load_dataset\n    def g(self):\n        load_dataset()",
    ],
)
def test_what_is_no_import_has_no_origin(source: str) -> None:
    assert origins(source) == set()


def test_a_name_imported_from_two_places_may_be_either() -> None:
    assert origins("if x:\n    from a import f\nelse:\n    from b import f\nf()") == {"a.f", "b.f"}


@pytest.mark.parametrize(
    "source",
    [
        "f('gpt2')",
        "NAME = 'gpt2'\nf(NAME)",
        "NAME: str = 'gpt2'\nf(NAME)",
        "def main():\n    name = 'gpt2'\n    f(name)",
        "NAME = 'gpt2'\ndef main():\n    f(NAME)",
        "BASE = 'gpt2'\nNAME = BASE\nf(NAME)",
        "f('gp' + 't2')",
        "SIZE = '2'\nf(f'gpt{SIZE}')",
        "class Config:\n    name = 'gpt2'\nf(Config.name)",
        "for f in g():\n    pass\nNAME = 'gpt2'\nprint(NAME)",
    ],
)
def test_a_name_bound_once_to_a_literal_is_its_value(source: str) -> None:
    assert value(source) == "gpt2"


@pytest.mark.parametrize(
    "source",
    [
        "f(name)",
        "def main(name='gpt2'):\n    f(name)",
        "name = 'gpt2'\ndef main(name):\n    f(name)",
        "name = 'gpt2'\nname = 'gpt3'\nf(name)",
        "name = 'gpt2'\nname += '-xl'\nf(name)",
        "name = 'gpt2'\nfor name in names:\n    f(name)",
        "name = 'gpt2'\ndef g():\n    global name\n    name = 'x'\nf(name)",
        "if x:\n    name = 'gpt2'\nelse:\n    name = 'b'\nf(name)",
        "name, other = 'gpt2', 'b'\nf(name)",
        "with g() as name:\n    f(name)",
        "if (name := g()):\n    f(name)",
        "class Config:\n    name = 'gpt2'\nConfig.name = 'x'\nf(Config.name)",
        "class Config:\n    name = 'gpt2'\n    def g(self):\n        f(name)",
        "f(args.name)",
        "f(f'gpt{size}')",
        "name = name2\nname2 = name\nf(name)",
        "NAMES = ['a']\nf(NAMES[0])",
    ],
)
def test_what_may_be_something_else_is_unknown(source: str) -> None:
    assert value(source) is UNKNOWN


def test_a_dict_that_is_changed_later_is_not_taken_for_its_literal() -> None:
    fixed, call, scope = last_call("kw = {'a': 1}\nf(kw)")
    assert isinstance(fixed.literal(call.args[0], scope), ast.Dict)  # type: ignore[arg-type]
    for change in ("kw['a'] = 2", "kw.update(a=2)", "del kw['a']"):
        names, call, scope = last_call(f"kw = {{'a': 1}}\n{change}\nf(kw)")
        assert not isinstance(names.literal(call.args[0], scope), ast.Dict), change  # type: ignore[arg-type]


def test_names_that_refer_to_each_other_without_end_are_given_up() -> None:
    lines = ["a0 = 'x'", *(f"a{i} = f'" + f"{{a{i - 1}}}" * 20 + "'" for i in range(1, 9))]
    names, call, scope = last_call("\n".join([*lines, "f(a8)"]))
    for _ in range(2000):
        assert names.value(call.args[0], scope) is UNKNOWN  # type: ignore[arg-type]
    assert names.exhausted
