"""One Python file of a checkout as `init` sees it, by its text alone: what it imports, opens and
names, its options, its seed."""

from __future__ import annotations

import os
import re
from collections.abc import Container, Iterator
from functools import cached_property
from pathlib import Path, PurePosixPath

from repro_gate.commands.init.survey import below, head
from repro_gate.trace import notebook

SIGNS = (  # of training: pattern, points, words
    (r"^\s*(import|from) torch\b", 15, "imports torch"),
    (r"^\s*(import|from) (lightning|pytorch_lightning)\b", 10, "imports Lightning"),
    (r"^\s*(import|from) (transformers|accelerate)\b", 5, "imports transformers or accelerate"),
    (r"\.backward\(", 25, "calls `.backward(`"),
    (r"\b(optim\w*|opt|scaler|svi)\.step\(", 20, "steps an optimizer"),
    (r"\b\w*Trainer\(", 20, "builds a Trainer"),
    (
        r"^from .*\btrain(er)?(\.\w+)* import|^from .* import .*\b\w*Trainer\b",
        15,
        "imports a trainer",
    ),
    (r"\.fit\(|\.train\(\)", 5, "fits a model"),
)
LOOPS = ("calls `.backward(`", "steps an optimizer", "builds a Trainer")  # of these signs
DOWNLOADS = re.compile(
    r"\brequests\b|\burllib\b|load_dataset\(|download\w*(=True|\()|from_pretrained\(|\bobservations\b"
)
_OPENED = re.compile(
    r"(?:open|load|read_csv|loadtxt|genfromtxt|read_parquet|fromfile|memmap|read_json|read_text)\(\s*(['\"])([^'\"\s:*?]+\.\w+)\1"
    r"(?!\s*,\s*['\"][wax])"
)
_WRITTEN = re.compile(
    r"\(\s*(?:\w+\s*,\s*)?['\"]([^'\"\s]+)['\"]\s*,\s*['\"][wax]"
    r"|\b(?:save|to_csv|savetxt|export)\((?:[^()]|\([^()]*\))*['\"]([^'\"\s]+)['\"]"
)
# What does something on the top level of a file, beside what only sets up, such as
# `sys.path.append(…)` and `torch.manual_seed(0)`.
_ACTS = re.compile(
    r"^if __name__|^(?:    )?(?:for|while|with)\b"
    r"|^(?:    "
    r")?(?!(?:[\w.]+\.)?(?:\w*seed|append|insert|filterwarnings|simplefilter|basicConfig|register\w*|update|set_\w+)\()[\w.]+\(",
    re.MULTILINE,
)
_STARTS = re.compile(_ACTS.pattern.replace("(?:    )?", ""), re.MULTILINE)
_OPTION = re.compile(r"\b(?:add_argument|option)\(((?:[^()]|\([^()]*\))*)\)")
_SEED = r"(?:random[-_]?|rng[-_]?|manual[-_]?|global[-_]?)?seed"
_SEEDS_ITSELF = re.compile(  # a generator's own `manual_seed` seeds a split, or a loader
    r"(?:(?:\btorch\.|\bcuda\.|(?<![\w.)\]]))manual_seed(?:_all)?"
    r"|\b(?:random\.seed|seed_everything|set_(?:random_|rng_)?seed|seed_all|fix_seed|setup_seed))\((\d{1,19})?"
)
# makes a command line of a class or a function
_ENTRY = r"\b(?:cli|parse|HfArgumentParser|Fire)\(\(?(?:\w+, *)*"
_IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+([.\w]+)[ \t]+)?import[ \t]+\(?((?:[\w.]+,?[ \t]*)+)", re.MULTILINE
)
# bytes that are looked at: of a script, and of a notebook with its pictures
_TEXT, _NOTEBOOK = (
    256 * 1024,
    8 * 1024 * 1024,
)
_KERNEL = re.compile(rb'"kernelspec"\s*:\s*\{[^{}]*"name"\s*:\s*"([^"]*)"')
_DATA_PLACE = re.compile(
    r"--(train[-_]?)?data(set)?[-_]?(dir|path|root|folder|file)", re.IGNORECASE
)


class Source:
    """One Python file or notebook and what its text tells."""

    def __init__(self, root: Path, path: str) -> None:
        self.root, self.path, self.folder = root, path, PurePosixPath(path).parent.as_posix()
        self.is_notebook = path.endswith(notebook.SUFFIX)
        content = head(root / path, _NOTEBOOK if self.is_notebook else _TEXT)
        kernel = _KERNEL.search(content) if self.is_notebook else None
        # the name that the notebook asks for
        self.kernel = kernel[1].decode("utf-8", "replace") if kernel else ""
        self.text = (
            "\n".join(notebook.code_cells(content))[:_TEXT]
            if self.is_notebook
            else content.decode("utf-8", "replace")
        )
        self.reasons = tuple(
            reason for pattern, _, reason in SIGNS if re.search(pattern, self.text, re.MULTILINE)
        )
        self.is_script = _ACTS.search(self.text) is not None
        imports = re.findall(
            r"^[ \t]*(?:import[ \t]+(\w[\w., ]*)|from[ \t]+(\w[\w.]*))", self.text, re.MULTILINE
        )
        self.imports = frozenset(
            re.split(r"\W", name.strip())[0]
            for pair in imports
            for name in ",".join(pair).split(",")
        )
        texts = re.findall(r"['\"]([^'\"\s:*?]{1,200})['\"]", self.text)
        self.paths = frozenset(text for text in texts if text.isprintable())
        self.written = frozenset(name for pair in _WRITTEN.findall(self.text) for name in pair)
        self.opened = tuple(
            dict.fromkeys(
                name for _, name in _OPENED.findall(self.text) if name in self.paths - self.written
            )
        )

    @property
    def starts(self) -> bool:
        """Whether it does something when it is started, beside what its functions do."""
        return _STARTS.search(self.text) is not None

    @property
    def trains(self) -> str:
        """The sign of a loop that steps an optimizer, in words; empty without one."""
        return next((reason for reason in LOOPS if reason in self.reasons), "")

    def modules(self, paths: Container[str]) -> Iterator[str]:
        """The files of the checkout that it imports, as far as they lie beside it, at the root or
        in `src`."""
        for module, names in _IMPORT.findall(self.text):
            dotted = [
                module or names,
                *(f"{module}.{name}" for name in re.split(r"\W+", names) if module),
            ]
            found = (
                below(base, f"{name.lstrip('.').replace('.', '/')}.py")
                for name in dotted
                for base in (self.folder, ".", "src")
            )
            yield from (
                path for path in found if path is not None and path in paths and path != self.path
            )

    @property
    def takes_words(self) -> bool:
        """Whether its command line may hold words that are no options."""
        return "sys.argv" in self.text or any(
            not name.startswith("-") for names, _ in self.options for name in names
        )

    @cached_property
    def options(self) -> list[tuple[list[str], str]]:
        """The names of each option and argument that it declares, and the words after them."""
        found = []
        for body in _OPTION.findall(self.text):
            names = re.match(r"(?:\s*['\"]-{0,2}[A-Za-z][\w-]*['\"]\s*,?)+", body)
            found += (
                [(re.findall(r"['\"]([\w-]+)['\"]", names[0]), body[names.end() :])]
                if names
                else []
            )
        return found

    @property
    def required(self) -> tuple[str, ...]:
        """Options and arguments without a default, and the place of the data, which is required in
        all but name."""

        def needed(name: str, words: str) -> bool:
            default = re.search(r"\bdefault\s*=\s*(?!None\b|''|\"\")", words)
            optional = re.search(r"nargs\s*=\s*['\"][?*]|\bdefault\s*=", words)
            wanted = re.search(r"\brequired\s*=\s*True", words) or (
                not name.startswith("-") and not optional
            )
            return bool(wanted or (_DATA_PLACE.fullmatch(name) and not default)) and not _is_seed(
                name
            )

        return tuple(names[0] for names, words in self.options if needed(names[0], words))

    @cached_property
    def seed(self) -> tuple[str, int | None]:
        """The option that takes a seed, such as `--seed`, and its default; empty where there is
        none."""
        name, default = next(self._seeds(), ("", ""))
        return name, int(default) if default and len(default) <= 10 and int(
            default
        ) < 2**32 else None

    def _seeds(self) -> Iterator[tuple[str, str]]:
        for names, words in self.options:
            default = re.search(r"\bdefault\s*=\s*([0-9]+)\b", words)
            yield from ((name, default[1] if default else "") for name in names if _is_seed(name))
        for name, body in re.findall(
            r"^(?:class|def) (\w+)(.*\n(?:[ \t]+.*\n|\n)*)", self.text, re.MULTILINE
        ):
            field = re.search(rf"\b({_SEED})\s*:\s*int\s*=\s*([0-9]+)", body)
            if field and re.search(rf"{_ENTRY}{name}\b", self.text):
                yield f"--{field[1]}", field[2]
        if re.search(rf"{_ENTRY}\w*TrainingArguments\b", self.text):
            yield "--seed", ""

    @property
    def own_seed(self) -> tuple[int, str] | None:
        """The first line that seeds a generator, and the number where it is written there."""
        found = sorted(
            _SEEDS_ITSELF.finditer(self.text), key=lambda match: (match[1] is None, match.start())
        )
        return (
            (self.text.count("\n", 0, found[0].start()) + 1, found[0][1] or "") if found else None
        )


def absent(source: Source, name: str, paths: set[str]) -> bool:
    """Whether a file that a script names is neither beside it nor at the root."""
    return not {below(".", name), below(source.folder, name)} & paths and not os.path.isabs(name)


def _is_seed(name: str) -> bool:
    return re.fullmatch("--" + _SEED, name, re.IGNORECASE) is not None
