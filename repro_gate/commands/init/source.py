"""One Python file of a checkout as `init` sees it, by its text alone: what it imports, opens and names, its options, its seed."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path, PurePosixPath

from repro_gate.commands.init.survey import below, head

SIGNS = (  # of training: pattern, points, words
    (r"^\s*(import|from) torch\b", 15, "imports torch"),
    (r"^\s*(import|from) (lightning|pytorch_lightning)\b", 10, "imports Lightning"),
    (r"^\s*(import|from) (transformers|accelerate)\b", 5, "imports transformers or accelerate"),
    (r"\.backward\(", 25, "calls `.backward(`"),
    (r"\b(optim\w*|opt|scaler|svi)\.step\(", 20, "steps an optimizer"),
    (r"\b\w*Trainer\(", 20, "builds a Trainer"),
    (r"^from .*\btrain(er)?(\.\w+)* import|^from .* import .*\b\w*Trainer\b", 15, "imports a trainer"),
    (r"\.fit\(|\.train\(\)", 5, "fits a model"),
)
DOWNLOADS = re.compile(r"\brequests\b|\burllib\b|load_dataset\(|download\w*(=True|\()|from_pretrained\(|\bobservations\b")
_OPENED = re.compile(
    r"(?:open|load|read_csv|loadtxt|genfromtxt|read_parquet|fromfile|memmap|read_json|read_text)\(\s*(['\"])([^'\"\s:*?]+\.\w+)\1"
    r"(?!\s*,\s*['\"][wax])"
)
_WRITTEN = re.compile(r"\(\s*(?:\w+\s*,\s*)?['\"]([^'\"\s]+)['\"]\s*,\s*['\"][wax]|\b(?:save|to_csv|savetxt)\([^()]*['\"]([^'\"\s]+)['\"]")
# What does something on the top level of a file, beside what only sets up, such as `sys.path.append(…)` and `torch.manual_seed(0)`.
_ACTS = re.compile(
    r"^if __name__|^(?:    )?(?:for|while|with)\b"
    r"|^(?:    )?(?!(?:[\w.]+\.)?(?:\w*seed|append|insert|filterwarnings|simplefilter|basicConfig|register\w*|update|set_\w+)\()[\w.]+\(",
    re.MULTILINE,
)
_OPTION = re.compile(r"\b(?:add_argument|option)\(((?:[^()]|\([^()]*\))*)\)")
_SEED = r"(?:random[-_]?|rng[-_]?|manual[-_]?|global[-_]?)?seed"
_SEEDS_ITSELF = re.compile(
    r"\b(?:manual_seed(?:_all)?|random\.seed|seed_everything|set_(?:random_|rng_)?seed|seed_all|fix_seed|setup_seed)\((\d{1,19})?"
)
_ENTRY = r"\b(?:cli|parse|HfArgumentParser|Fire)\(\(?(?:\w+, *)*"  # makes a command line of a class or a function
_DATA_PLACE = re.compile(r"--(train[-_]?)?data(set)?[-_]?(dir|path|root|folder|file)", re.IGNORECASE)


class Source:
    """One Python file and what its text tells."""

    def __init__(self, root: Path, path: str) -> None:
        self.root, self.path, self.folder = root, path, PurePosixPath(path).parent.as_posix()
        self.text = head(root / path).decode("utf-8", "replace")
        self.reasons = tuple(reason for pattern, _, reason in SIGNS if re.search(pattern, self.text, re.MULTILINE))
        self.is_script = _ACTS.search(self.text) is not None
        imports = re.findall(r"^[ \t]*(?:import[ \t]+(\w[\w., ]*)|from[ \t]+(\w[\w.]*))", self.text, re.MULTILINE)
        self.imports = frozenset(re.split(r"\W", name.strip())[0] for pair in imports for name in ",".join(pair).split(","))
        texts = re.findall(r"['\"]([^'\"\s:*?]{1,200})['\"]", self.text)
        self.paths = frozenset(text for text in texts if text.isprintable())
        written = {name for pair in _WRITTEN.findall(self.text) for name in pair}
        self.opened = tuple(dict.fromkeys(name for _, name in _OPENED.findall(self.text) if name in self.paths - written))

    @cached_property
    def options(self) -> list[tuple[list[str], str]]:
        """The names of each option and argument that it declares, and the words after them."""
        found = []
        for body in _OPTION.findall(self.text):
            names = re.match(r"(?:\s*['\"]-{0,2}[A-Za-z][\w-]*['\"]\s*,?)+", body)
            found += [(re.findall(r"['\"]([\w-]+)['\"]", names[0]), body[names.end() :])] if names else []
        return found

    @property
    def required(self) -> tuple[str, ...]:
        """Options and arguments without a default, and the place of the data, which is required in all but name."""

        def needed(name: str, words: str) -> bool:
            default = re.search(r"\bdefault\s*=\s*(?!None\b|''|\"\")", words)
            optional = re.search(r"nargs\s*=\s*['\"][?*]|\bdefault\s*=", words)
            wanted = re.search(r"\brequired\s*=\s*True", words) or (not name.startswith("-") and not optional)
            return bool(wanted or (_DATA_PLACE.fullmatch(name) and not default)) and not _is_seed(name)

        return tuple(names[0] for names, words in self.options if needed(names[0], words))

    @cached_property
    def seed(self) -> tuple[str, int | None]:
        """The option that takes a seed, such as `--seed`, and its default; empty where there is none."""
        name, default = next(self._seeds(), ("", ""))
        return name, int(default) if default and len(default) <= 10 and int(default) < 2**32 else None

    def _seeds(self) -> Iterator[tuple[str, str]]:
        for names, words in self.options:
            default = re.search(r"\bdefault\s*=\s*([0-9]+)\b", words)
            yield from ((name, default[1] if default else "") for name in names if _is_seed(name))
        for name, body in re.findall(r"^(?:class|def) (\w+)(.*\n(?:[ \t]+.*\n|\n)*)", self.text, re.MULTILINE):
            field = re.search(rf"\b({_SEED})\s*:\s*int\s*=\s*([0-9]+)", body)
            if field and re.search(rf"{_ENTRY}{name}\b", self.text):
                yield f"--{field[1]}", field[2]
        if re.search(rf"{_ENTRY}\w*TrainingArguments\b", self.text):
            yield "--seed", ""

    @property
    def own_seed(self) -> tuple[int, str] | None:
        """The first line that seeds a generator, and the number where it is written there."""
        found = sorted(_SEEDS_ITSELF.finditer(self.text), key=lambda match: (match[1] is None, match.start()))
        return (self.text.count("\n", 0, found[0].start()) + 1, found[0][1] or "") if found else None


def absent(source: Source, name: str, paths: set[str]) -> bool:
    """Whether a file that a script names is neither beside it nor at the root."""
    return not {below(".", name), below(source.folder, name)} & paths and not os.path.isabs(name)


def _is_seed(name: str) -> bool:
    return re.fullmatch("--" + _SEED, name, re.IGNORECASE) is not None
