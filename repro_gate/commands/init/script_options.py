"""What a training script takes on its command line, and how it seeds itself, read from its source without running it.

Knows argparse, click and absl; dataclasses and functions that tyro, simple-parsing, HfArgumentParser, fire or typer turn into options;
hydra; and minGPT's `CfgNode`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

_SEED = r"(random[-_]?|rng[-_]?|manual[-_]?|global[-_]?)?seed"
_ENTRIES = frozenset({"cli", "CLI", "HfArgumentParser", "add_arguments", "parse", "ArgumentParser", "Fire", "run", "wrap"})
_SEEDING = re.compile(
    r"torch(\.cuda)?\.manual_seed(_all)?|(np|numpy)\.random\.seed|random\.seed"
    r"|(\w+\.)*(seed_everything|set_seed|set_random_seed|set_rng_seed|seed_all|fix_seed|setup_seed)"
)
_DATA_PLACE = re.compile(r"--(train[-_]?)?data(set)?[-_]?(dir|path|root|folder|file)", re.IGNORECASE)
_STAND_INS = ("fake", "dummy", "synthetic")  # values of a required option that need no data


@dataclass(frozen=True, kw_only=True)
class ScriptOptions:
    """`seed` hands the seed on, such as `--seed {seed}`. `required` are options and arguments without a default, `stand_ins` the words for
    those of them that take made-up data. `own_seed` is the line where the script seeds itself, and the number where it is written there."""

    seed: str | None = None
    default_seed: int | None = None
    required: tuple[str, ...] = ()
    stand_ins: tuple[str, ...] = ()
    declared: frozenset[str] = frozenset()
    own_seed: tuple[int, int | None] | None = None


def script_options(tree: ast.Module, config: Callable[[str], str]) -> ScriptOptions:
    """The options of a parsed script. `config` gives the text of a file beside it, empty where there is none: hydra's configuration."""
    nodes = list(ast.walk(tree))
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    declared = [
        (_texts(call.args), {word.arg: word.value for word in call.keywords})
        for call in calls
        if _last(call.func) in ("add_argument", "option")
    ]
    required, stand_ins = [], []
    for names, words in declared:
        if names and (_value(words.get("required")) is True or _is_positional(names, words)):
            wanted = next((word for word in _STAND_INS if word in _choices(words)), None)
            if wanted and names[0].startswith("-"):
                stand_ins.append(f"{names[0]} {wanted}")
            elif not re.fullmatch("--" + _SEED, names[0], re.IGNORECASE):
                required.append(names[0])
    if not stand_ins:  # an option for the place of the data without a default is required in all but name
        places = [names[0] for names, words in declared if names and _DATA_PLACE.fullmatch(names[0]) and not _value(words.get("default"))]
        required += [name for name in places if name not in required]
    seed, default = next(_seeds(nodes, calls, declared, config), (None, None))
    return ScriptOptions(
        seed=seed,
        default_seed=default if type(default) is int and 0 <= default < 2**32 else None,
        required=tuple(required),
        stand_ins=tuple(stand_ins),
        declared=frozenset(name for names, _ in declared for name in names),
        own_seed=_own_seed(nodes, calls),
    )


def _seeds(
    nodes: list[ast.AST],
    calls: list[ast.Call],
    declared: list[tuple[list[str], dict[str | None, ast.expr]]],
    config: Callable[[str], str],
) -> Iterator[tuple[str, object]]:
    """The ways to hand a seed on, each with its default."""
    for names, words in declared:
        for name in names:
            if re.fullmatch("--" + _SEED, name, re.IGNORECASE):
                yield f"{name} {{seed}}", _value(words.get("default"))
    for call in calls:
        if _last(call.func) == "DEFINE_integer" and len(call.args) > 1 and re.fullmatch(_SEED, str(_value(call.args[0]))):
            yield f"--{_value(call.args[0])} {{seed}}", _value(call.args[1])
    entries = {
        node.id
        for call in calls
        if _last(call.func) in _ENTRIES
        for word in call.args
        for node in ast.walk(word)
        if isinstance(node, ast.Name)
    }
    for node in nodes:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            decorators = {_last(item.func if isinstance(item, ast.Call) else item) for item in node.decorator_list}
            if node.name in entries or decorators & {"command", "wrap"}:
                yield from _fields(node, typer="command" in decorators)
    if any(name.endswith("TrainingArguments") for name in entries):
        yield "--seed {seed}", None
    for call in calls:
        if _dotted(call.func) == "hydra.main":
            given = {word.arg: _value(word.value) for word in call.keywords}
            yield from _hydra_seeds(config(f"{given.get('config_path') or '.'}/{given.get('config_name') or 'config'}"))
    if any(_last(call.func) == "merge_from_args" for call in calls):
        for node in nodes:
            if isinstance(node, ast.Assign) and re.fullmatch(r"\w+(\.\w+)*\.seed", path := _dotted(node.targets[0])):
                yield f"--{path.partition('.')[2]}={{seed}}", _value(node.value)


def _fields(node: ast.FunctionDef | ast.ClassDef, *, typer: bool) -> Iterator[tuple[str, object]]:
    if isinstance(node, ast.ClassDef):
        found = [
            (item.target.id, item.value) for item in node.body if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
        ]
    else:
        plain = [*node.args.posonlyargs, *node.args.args]
        named = [*plain, *node.args.kwonlyargs]
        values = [None] * (len(plain) - len(node.args.defaults)) + [*node.args.defaults, *node.args.kw_defaults]
        found = [(name.arg, value) for name, value in zip(named, values, strict=True)]
    for name, value in found:
        if re.fullmatch(_SEED, name):
            yield f"--{name.replace('_', '-') if typer else name} {{seed}}", _value(value)


def _hydra_seeds(text: str) -> Iterator[tuple[str, object]]:
    """The keys named `seed` of a YAML file as hydra's overrides, from its indentation: `trainer.seed={seed}`."""
    above: list[tuple[int, str]] = []
    found = []
    for line in text.splitlines():
        if match := re.match(r"( *)([\w-]+):\s*([^#]*)", line):
            depth = len(match[1])
            above = [item for item in above if item[0] < depth]
            if re.fullmatch(_SEED, match[2]) and match[3].strip():
                value = match[3].strip()
                found.append(
                    (".".join([*(name for _, name in above), match[2]]), int(value) if re.fullmatch(r"[0-9]{1,10}", value) else None)
                )
            above.append((depth, match[2]))
    yield from ((f"{path}={{seed}}", value) for path, value in sorted(found, key=lambda item: item[0].count(".")))


def _own_seed(nodes: list[ast.AST], calls: list[ast.Call]) -> tuple[int, int | None] | None:
    """The first line that seeds a generator, with the whole number that it is given, if the source tells."""
    seeding = [call for call in calls if call.args and _SEEDING.fullmatch(_dotted(call.func))]
    if not seeding:
        return None
    constants: dict[str, object] = {}
    for node in nodes:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            constants.setdefault(node.targets[0].id, _value(node.value))
        elif isinstance(node, ast.Dict):
            constants.update({f"[{_value(key)}]": _value(value) for key, value in zip(node.keys, node.values, strict=True)})
    told = [(call.lineno, _number(call.args[0], constants)) for call in seeding]
    return min(told, key=lambda item: (item[1] is None, item[0]))


def _number(node: ast.expr, constants: dict[str, object]) -> int | None:
    if isinstance(node, ast.BinOp):
        return _number(node.left, constants)
    value = _value(node)
    if isinstance(node, ast.Name):
        value = constants.get(node.id)
        if value is None:
            value = constants.get(f"[{node.id}]")
    elif isinstance(node, ast.Subscript):
        value = constants.get(f"[{_value(node.slice)}]")
    return value if type(value) is int and abs(value) < 2**64 else None


def _is_positional(names: Sequence[str], words: dict[str | None, ast.expr]) -> bool:
    return not names[0].startswith("-") and _value(words.get("nargs")) not in ("?", "*") and "default" not in words


def _choices(words: dict[str | None, ast.expr]) -> set[str]:
    """The values that an option takes, from its `choices`, or from a help text that lists them as `a | b | c`."""
    choices, text = words.get("choices"), _value(words.get("help"))
    listed = _texts(choices.elts) if isinstance(choices, (ast.List, ast.Tuple)) else []
    return {*listed, *(word.strip() for word in text.split("|"))} if isinstance(text, str) else set(listed)


def _texts(arguments: Sequence[ast.expr]) -> list[str]:
    return [text for text in map(_value, arguments) if isinstance(text, str) and text.isprintable()]


def _value(node: ast.AST | None) -> object:
    return node.value if isinstance(node, ast.Constant) else None


def _dotted(node: ast.expr) -> str:
    """`a.b.c` of a name or an attribute, empty for anything else."""
    if isinstance(node, ast.Attribute):
        front = _dotted(node.value)
        return f"{front}.{node.attr}" if front else ""
    return node.id if isinstance(node, ast.Name) else ""


def _last(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
