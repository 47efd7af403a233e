"""What the names of one Python module stand for, read from its syntax tree without running it.

A small symbol table: each module, class and function body is a scope; a name resolves in the innermost scope that binds it. `origins`
follows imports, aliases, subclasses and instances to dotted names (after `from transformers import AutoModel as A`, `A.from_pretrained` is
`transformers.AutoModel.from_pretrained`); `value` follows names that are bound once, to a literal. What cannot be told is UNKNOWN, never
guessed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

UNKNOWN = object()
_DEPTH = 8  # names followed one after the other
_STEPS = 1_000_000  # look-ups in one module: an untrusted names may refer to each other twenty times over
_LONGEST = 2_000  # characters of one value
_CHANGES = frozenset({"update", "setdefault", "pop", "append", "extend"})  # methods that change a dict or list in place
_BODIES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_BINDING = (
    *(ast.Call, ast.Name, ast.Attribute, ast.Subscript, ast.Assign, ast.AnnAssign, ast.Import, ast.ImportFrom, ast.ClassDef),
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.Global, ast.Nonlocal, ast.ExceptHandler, ast.MatchAs, ast.MatchStar),
)
_SYMBOLS = (ast.expr_context, ast.operator, ast.cmpop, ast.unaryop, ast.boolop)
_LEAVES = frozenset({ast.Constant, *(kind for group in _SYMBOLS for kind in group.__subclasses__())})  # nothing is bound in or below these


@dataclass(frozen=True)
class _Imported:
    """Bound by an import, to this dotted name."""

    dotted: str


@dataclass(frozen=True)
class _Hidden:
    """Bound to what the syntax does not tell: a parameter, a function, a loop's variable. `shadows`: never the import of the same name."""

    shadows: bool


_Binding = _Imported | _Hidden | ast.ClassDef | ast.expr


@dataclass(eq=False)
class Scope:
    """The names that one body binds. `parent` is the scope that its functions see beyond it."""

    parent: Scope | None
    is_class: bool = False
    bindings: dict[str, list[_Binding]] = field(default_factory=dict)
    stars: list[str] = field(default_factory=list)  # modules of `from … import *`

    def bind(self, name: str, binding: _Binding) -> None:
        """One more thing that this name is bound to."""
        self.bindings.setdefault(name, []).append(binding)

    def inner(self, is_class: bool = False) -> Scope:
        """The scope of a body inside this one; functions do not see the names of a class around them."""
        return Scope(self.parent if self.is_class and not is_class else self, is_class)

    def find(self, name: str) -> tuple[Scope, list[_Binding]] | None:
        """The innermost scope that binds the name, and what it binds it to."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.bindings:
                return scope, scope.bindings[name]
            scope = scope.parent
        return None


class ModuleNames:
    """The names of one module. `calls()` yields its calls, each with the scope that it stands in."""

    def __init__(self, tree: ast.Module) -> None:
        self._module = Scope(None)
        self._classes: dict[ast.ClassDef, Scope] = {}
        self._attributes: set[str] = set()  # names of attributes that some line assigns, `x.name = …`
        self._changed: set[str] = set()  # names whose value some line changes in place, `x["a"] = …`
        self._calls: list[tuple[ast.Call, Scope]] = []
        self._steps = _STEPS
        pending: list[tuple[ast.AST, Scope, bool]] = [(tree, self._module, False)]
        while pending:  # no recursion: an untrusted tree is as deep as they like
            node, scope, handler = pending.pop()
            if isinstance(node, _BINDING):
                self._bind(node, scope, handler)
            below = self._bodies(node, scope) if isinstance(node, _BODIES) else self._below(node, scope, handler)
            pending += reversed(list(below))

    @property
    def exhausted(self) -> bool:
        """Whether so much was asked that names are no longer followed."""
        return self._steps < 0

    def calls(self) -> Iterator[tuple[ast.Call, Scope]]:
        """Every call, with its scope, in the order of the file."""
        yield from self._calls

    def origins(self, node: ast.expr, scope: Scope, depth: int = _DEPTH) -> frozenset[str]:
        """The dotted names that an expression may stand for; empty where it is none of an import."""
        self._steps -= 1
        attributes: list[str] = []
        while isinstance(node, ast.Attribute) and len(attributes) < 20:
            attributes.append(node.attr)
            node = node.value
        if depth <= 0 or self.exhausted:
            return frozenset()
        if isinstance(node, ast.Call):  # an instance, told apart by its class; or what a function or a class method gives, which is another
            called = self.origins(node.func, scope, depth - 1)
            found = frozenset(name if name.rpartition(".")[2][:1].isupper() else f"{name}()" for name in called)
        elif isinstance(node, ast.Name):
            found = self._name_origins(node.id, scope, depth)
        else:
            return frozenset()
        return frozenset(".".join([name, *reversed(attributes)]) for name in found)

    def value(self, node: ast.expr | None, scope: Scope, depth: int = _DEPTH) -> object:
        """The text, number, bool or None that an expression stands for, or UNKNOWN."""
        self._steps -= 1
        if isinstance(node, ast.Constant):
            return node.value
        if depth <= 0 or node is None or self.exhausted:
            return UNKNOWN
        if isinstance(node, ast.JoinedStr):
            return self._joined([part.value if isinstance(part, ast.FormattedValue) else part for part in node.values], scope, depth)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            return self._joined([node.left, node.right], scope, depth)
        found = self._bound(node, scope)
        return self.value(found[0], found[1], depth - 1) if found else UNKNOWN

    def literal(self, node: ast.expr, scope: Scope) -> ast.expr:
        """The expression that a name bound once stands for, else the expression itself."""
        found = self._bound(node, scope)
        return found[0] if found else node

    def _bound(self, node: ast.expr, scope: Scope) -> tuple[ast.expr, Scope] | None:
        """What a name, or an attribute of a class of this module, is bound to, where that happens once."""
        name, where = (node.id, scope) if isinstance(node, ast.Name) and node.id not in self._changed else ("", None)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.attr not in self._attributes:
            holder = scope.find(node.value.id)
            if holder and len(holder[1]) == 1 and isinstance(holder[1][0], ast.ClassDef):
                name, where = node.attr, self._classes.get(holder[1][0])
                found = (where, where.bindings[name]) if where and name in where.bindings else None
                return self._single(found)
        return self._single(where.find(name)) if where else None

    @staticmethod
    def _single(found: tuple[Scope, list[_Binding]] | None) -> tuple[ast.expr, Scope] | None:
        if found and len(found[1]) == 1 and isinstance(found[1][0], ast.expr):
            return found[1][0], found[0]
        return None

    def _joined(self, parts: list[ast.expr], scope: Scope, depth: int) -> object:
        texts = [self.value(part, scope, depth - 1) for part in parts[:20]]
        whole = "".join(text for text in texts if isinstance(text, str))
        return whole if len(parts) <= 20 and all(isinstance(text, str) for text in texts) and len(whole) <= _LONGEST else UNKNOWN

    def _name_origins(self, name: str, scope: Scope, depth: int) -> frozenset[str]:
        found = scope.find(name)
        if found is None:
            return frozenset(f"{module}.{name}" for module in self._module.stars)
        where, bindings = found
        if any(isinstance(item, _Hidden) and item.shadows for item in bindings):
            return frozenset()
        imported = frozenset(item.dotted for item in bindings if isinstance(item, _Imported))
        if imported or len(bindings) > 1:
            return imported
        item = bindings[0]
        if isinstance(item, ast.ClassDef):
            return frozenset().union(*(self.origins(base, where, depth - 1) for base in item.bases[:5]))
        return self.origins(item, where, depth - 1) if isinstance(item, ast.expr) else frozenset()

    def _bind(self, node: ast.AST, scope: Scope, handler: bool) -> None:
        if isinstance(node, ast.Call):
            self._calls.append((node, scope))
            if isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name) and node.func.attr in _CHANGES:
                self._changed.add(node.func.value.id)
        elif isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load) and isinstance(node.value, ast.Name):
            self._changed.add(node.value.id)
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            scope.bind(node.id, _Hidden(False))
        elif isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            self._attributes.add(node.attr)
        elif isinstance(node, ast.Import):
            for item in node.names:
                scope.bind(item.asname or item.name.partition(".")[0], _Imported(item.name if item.asname else item.name.partition(".")[0]))
        elif isinstance(node, ast.ImportFrom):
            self._bind_from(node, scope)
        elif isinstance(node, ast.ClassDef):
            scope.bind(node.name, node)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            scope.bind(node.name, _Hidden(not handler))  # in `except ImportError:` it stands in for the import
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            for target in _plain_targets(node):
                scope.bind(target.id, node.value or _Hidden(False))
        elif isinstance(node, (ast.Global, ast.Nonlocal)):
            self._bind_outside(node.names, scope)
        elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
            scope.bind(node.name, _Hidden(False))

    def _bind_from(self, node: ast.ImportFrom, scope: Scope) -> None:
        module = "." * node.level + (node.module or "")
        for item in node.names:
            if item.name == "*":
                self._module.stars.append(module)
            else:
                scope.bind(item.asname or item.name, _Imported(f"{module}.{item.name}"))

    @staticmethod
    def _bind_outside(names: list[str], scope: Scope) -> None:
        outer = scope.parent
        while outer is not None:
            for name in names:
                outer.bind(name, _Hidden(False))
            outer = outer.parent

    @staticmethod
    def _below(node: ast.AST, scope: Scope, handler: bool) -> Iterator[tuple[ast.AST, Scope, bool]]:
        """The nodes below with the scope that each stands in, but the names of a plain `name = value`, which are bound to its value."""
        plain = _plain_targets(node) if isinstance(node, (ast.Assign, ast.AnnAssign)) else ()
        handler = handler or isinstance(node, ast.ExceptHandler)
        for child in ast.iter_child_nodes(node):
            read = isinstance(child, ast.Name) and isinstance(child.ctx, ast.Load)  # half of all nodes: nothing is bound there either
            if not read and type(child) not in _LEAVES and child not in plain:
                yield child, scope, handler

    def _bodies(self, node: ast.AST, scope: Scope) -> Iterator[tuple[ast.AST, Scope, bool]]:
        """The nodes below a class or function: its body in a scope of its own, the rest in the scope around it."""
        body: list[ast.AST]
        around: list[ast.AST | None]
        if isinstance(node, ast.ClassDef):
            inner = self._classes[node] = scope.inner(is_class=True)
            body, around = [*node.body], [*node.bases, *node.keywords, *node.decorator_list]
        else:
            inner = scope.inner()
            assert isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
            given = node.args
            for item in (*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg):
                if item is not None:
                    inner.bind(item.arg, _Hidden(True))
            body = [node.body] if isinstance(node, ast.Lambda) else [*node.body]
            around = [*given.defaults, *given.kw_defaults, *([] if isinstance(node, ast.Lambda) else node.decorator_list)]
        yield from ((item, scope, False) for item in around if item is not None)
        yield from ((item, inner, False) for item in body)


def _plain_targets(node: ast.AST) -> list[ast.Name]:
    """The names that `a = b = value` or `a: type = value` binds as a whole."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [target for target in targets if isinstance(target, ast.Name)]
