"""One Python file of a checkout as `init` sees it: the signs of training in it, what it opens, names and imports. Nothing of it is run."""

from __future__ import annotations

import ast
import os
import re
import warnings
from functools import cached_property
from pathlib import Path, PurePosixPath

from repro_gate.commands.init.survey import below, head

SIGNS = (
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
_READERS = frozenset({"open", "load", "read_csv", "loadtxt", "genfromtxt", "read_parquet", "fromfile", "memmap", "read_json", "read_text"})
_SETTING_UP = r"\w*seed|append|insert|filterwarnings|simplefilter|basicConfig|register\w*|update|set_\w+"


class Source:
    """One Python file: its text and what the syntax tree tells of it."""

    def __init__(self, root: Path, path: str) -> None:
        self.root, self.path = root, path
        self.folder = PurePosixPath(path).parent.as_posix()
        self.text = head(root / path).decode("utf-8", "replace")

    @cached_property
    def tree(self) -> ast.Module:
        """The syntax tree; empty where the source does not parse."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the user's invalid escapes are not ours to report
                return ast.parse(self.text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return ast.Module([], [])

    @cached_property
    def is_script(self) -> bool:
        """Whether running the file does something: it has code beside imports, definitions and values. Unparsable source may."""
        return not self.tree.body or any(_acts(node) for node in self.tree.body)

    @cached_property
    def reasons(self) -> tuple[str, ...]:
        """The signs of training that its source shows."""
        return tuple(reason for pattern, _, reason in SIGNS if re.search(pattern, self.text, re.MULTILINE))

    @cached_property
    def paths(self) -> frozenset[str]:
        """The texts of the source that look like paths."""
        texts = (node.value for node in ast.walk(self.tree) if isinstance(node, ast.Constant) and isinstance(node.value, str))
        return frozenset(text for text in texts if text.isprintable() and re.fullmatch(r"[^\s:*?]{1,200}", text))

    @cached_property
    def opened(self) -> tuple[str, ...]:
        """The files that it opens for reading by a name that stands in the source, without those that it writes."""
        read, written = [], set()
        for call in ast.walk(self.tree):
            if not isinstance(call, ast.Call):
                continue
            texts = [node.value for node in call.args if isinstance(node, ast.Constant) and isinstance(node.value, str)]
            name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
            reads = name in _READERS and not any(re.fullmatch(r"[wax][bt+]*", text) for text in texts[1:2])
            if reads and texts and texts[0] in self.paths and "." in texts[0]:
                read.append(texts[0])
            else:
                written.update(texts)
        return tuple(dict.fromkeys(name for name in read if name not in written))

    @cached_property
    def imports(self) -> frozenset[str]:
        """The names of the packages that it imports by their full names."""
        names = set()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                names |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
                names.add(node.module.partition(".")[0])
        return frozenset(names)

    def config(self, path: str) -> str:
        """The text of a YAML file beside the script, named with or without its suffix."""
        for suffix in ("", ".yaml", ".yml"):
            found = below(self.folder, path + suffix)
            if found and (self.root / found).is_file():
                return head(self.root / found).decode("utf-8", "replace")
        return ""


def absent(source: Source, name: str, paths: set[str]) -> bool:
    return not {below(".", name), below(source.folder, name)} & paths and not os.path.isabs(name)


def _acts(node: ast.stmt) -> bool:
    if isinstance(node, ast.If):
        return any(isinstance(item, ast.Constant) and item.value == "__main__" for item in ast.walk(node.test)) or any(
            map(_acts, [*node.body, *node.orelse])
        )
    if isinstance(node, ast.Try):
        return any(map(_acts, node.body))
    return isinstance(node, (ast.For, ast.While, ast.With)) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and _trains(node)
    )


def _trains(node: ast.Expr) -> bool:
    """Whether a call on the top level may be the training, as `main()` or `trainer.fit(model)`; `torch.manual_seed(0)` is not."""
    names = {getattr(item, "attr", getattr(item, "id", "")) for item in ast.walk(node)}
    return not any(re.fullmatch(_SETTING_UP, name) for name in names)
