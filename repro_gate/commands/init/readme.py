"""The commands with which the READMEs of a checkout start its scripts: the best sign of what a user
of that repository runs."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from repro_gate.commands.init.survey import Tree, below, head

_MAX_READMES = 50
AT_ROOT = 1 << 20  # places below this lie in the README at the root
_COMMAND = re.compile(
    r"(?<![\w./-])(python3?|torchrun|accelerate launch|deepspeed)((?:[ \t]+-[^\s`]+)*)[ "
    r"\t]+(?:-m[ \t]+([\w.]+)|([\w./-]+\.py)\b)([^\n`]*)"
)
_LINE_START = re.compile(r"(.*`|[\s$>]*)(\w+=\S+\s+|uv run\s+)*")
# Words of a command that is not the plain training: another purpose, hardware that a machine may
# not have, or a place to be filled in.
_OTHER = re.compile(
    r"^--?(h|help|eval|evaluate|sample|sample-only|generate|resume|inference|test|track|viz|export|profile|dist)\b(?![-_]iters)"
    r"|(^|/)(eval|sample|generate|test)\w*\.py|cuda|gpu|accel|nccl|wandb|path/to|your|\.\.\.|[<>\[\]{}$|;&*…]",
    re.IGNORECASE,
)


@dataclass(frozen=True, kw_only=True)
class Shown:
    """A command of a README: the script's path in the checkout, the folder that the command starts
    in, and the words after the script."""

    readme: str
    script: str
    module: str  # its name where `-m` starts it, else empty
    folder: str
    words: tuple[str, ...]
    plain: bool  # it trains in one process, and can be run as it stands


@dataclass(frozen=True)
class Readmes:
    """What the READMEs show: their commands in order, and their texts by path, nearest to the root
    first."""

    commands: tuple[Shown, ...]
    texts: dict[str, str]
    shared_names: frozenset[str]  # of scripts: such a name alone does not say which is meant

    def points(self, script: str) -> tuple[int, int]:
        """How much speaks for a script, most in the README at the root: points, and the place where
        it is first named."""
        points, first = 0, 2 * AT_ROOT
        for readme, text in self.texts.items():
            folder, name = PurePosixPath(readme).parent, PurePosixPath(script).name
            weight = (
                25
                if folder.as_posix() == "."
                else 8
                if PurePosixPath(script).parent == folder
                else 0
            )
            named = script if weight == 25 and name in self.shared_names else name
            if weight and (match := re.search(rf"(?<![\w.-]){re.escape(named)}", text)):
                shown = [
                    number
                    for number, item in enumerate(self.commands)
                    if (item.readme, item.script) == (readme, script)
                ]
                points += weight * (2 if shown else 1)
                # what it runs goes before what it only speaks of
                place = shown[0] if shown else AT_ROOT // 2 + match.start()
                first = min(first, place + (0 if weight == 25 else AT_ROOT))
        return min(points, 40), first


def readmes(root: Path, tree: Tree) -> Readmes:
    """Read the READMEs of a checkout, within limits of number and size."""
    found = [
        file.path
        for file in tree.files
        if re.fullmatch(r".*readme.*\.(md|rst|txt)", PurePosixPath(file.path).name, re.IGNORECASE)
    ]
    texts = {
        path: head(root / path).decode("utf-8", "replace")
        for path in sorted(found, key=lambda path: path.count("/"))[:_MAX_READMES]
    }
    paths = {file.path for file in tree.files}
    names = Counter(PurePosixPath(path).name for path in paths)
    commands = tuple(
        shown for readme, text in texts.items() for shown in _commands(readme, text, paths)
    )
    return Readmes(commands, texts, frozenset(name for name, number in names.items() if number > 1))


def _commands(readme: str, text: str, paths: set[str]) -> Iterator[Shown]:
    joined = text.replace("\\\n", " ")
    for match in _COMMAND.finditer(joined):
        line = max(joined.rfind("\n", 0, match.start()) + 1, match.start() - 200)
        is_code = _LINE_START.fullmatch(joined[line : match.start()])
        try:
            # in a sentence, other words follow
            words = shlex.split(match[5], comments=True) if is_code else []
        except ValueError:
            continue
        one_process = match[1].startswith("python") or (
            match[1].startswith("accelerate") and not match[2]
        )
        plain = one_process and not any(
            _OTHER.search(word) or not word.isprintable() for word in words
        )
        module = match[3] or ""
        named = (
            [f"{module.replace('.', '/')}{end}" for end in (".py", "/__main__.py")]
            if module
            else [match[4]]
        )
        places = (
            (folder, below(folder, name))
            for folder in (".", PurePosixPath(readme).parent.as_posix())
            for name in named
        )
        folder, script = next((place for place in places if place[1] in paths), ("", None))
        if script is not None:
            yield Shown(
                readme=readme,
                script=script,
                module=module,
                folder=folder,
                words=tuple(words),
                plain=plain,
            )
