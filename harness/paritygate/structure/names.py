"""What a name means: the definitions, imports and aliases of every module, followed to the definition."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

from paritygate.structure.source import Module, Tree

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


def dotted(node: ast.AST) -> str | None:
    """`a.b.c` of a chain of names; None for anything else. `getattr(a, "b")` is `a.b`."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        value = dotted(node.value)
        return None if value is None else f"{value}.{node.attr}"
    named = constant_getattr(node)
    if named is not None:
        value = dotted(named[0])
        return None if value is None else f"{value}.{named[1]}"
    return None


def constant_getattr(node: ast.AST) -> tuple[ast.expr, str] | None:
    """The object and the name of `getattr(object, "name")`."""
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "getattr"
        and len(node.args) >= 2
        and isinstance(node.args[1], ast.Constant)
        and isinstance(node.args[1].value, str)
    ):
        return node.args[0], node.args[1].value
    return None


def imported(statement: ast.Import | ast.ImportFrom, module: Module) -> Iterator[tuple[str, str]]:
    """(local name, dotted target) of each name that an import statement binds; `*` binds the name `*`."""
    if isinstance(statement, ast.Import):
        for alias in statement.names:
            if alias.asname:
                yield alias.asname, alias.name
            else:
                top = alias.name.split(".")[0]
                yield top, top
        return
    source = statement.module or ""
    if statement.level:
        package = module.package.split(".")
        package = package[: len(package) - (statement.level - 1)]
        source = ".".join([*package, source] if source else package)
    for alias in statement.names:
        yield alias.asname or alias.name, source if alias.name == "*" else f"{source}.{alias.name}"


def statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a scope, also those under `if`, `try`, `with` and loops; not those of functions."""
    for statement in body:
        yield statement
        if isinstance(statement, FunctionNode | ast.ClassDef):
            continue
        for _, value in ast.iter_fields(statement):
            if isinstance(value, list):
                inner = [item for item in value if isinstance(item, ast.stmt)]
                yield from statements(inner)
                for item in value:
                    if isinstance(item, ast.ExceptHandler | ast.match_case):
                        yield from statements(item.body)


@dataclass
class ClassInfo:
    """A class: its bases as written, its methods, and the annotations of its attributes."""

    name: str
    module: Module
    node: ast.ClassDef
    bases: list[str]
    methods: dict[str, FunctionNode] = field(default_factory=dict)
    annotations: dict[str, ast.expr] = field(default_factory=dict)


@dataclass
class Index:
    """What one module binds and defines, from its own text alone: targets and definitions, dotted."""

    bound: dict[str, str] = field(default_factory=dict)
    functions: dict[str, tuple[Module, FunctionNode]] = field(default_factory=dict)
    classes: dict[str, ClassInfo] = field(default_factory=dict)


Kind = TypeVar("Kind")

_INDEXES: WeakKeyDictionary[Module, Index] = WeakKeyDictionary()


def index_of(module: Module) -> Index:
    """The index of a module, made once. Raises SourceError where it cannot be parsed."""
    if module not in _INDEXES:
        _INDEXES[module] = _Indexer(module).index
    return _INDEXES[module]


class _Indexer:
    def __init__(self, module: Module) -> None:
        self.index = Index()
        self.module = module
        bound = self.index.bound
        for statement in statements(module.tree.body):
            if isinstance(statement, ast.Import | ast.ImportFrom):
                for name, target in imported(statement, module):
                    bound[f"* {target}" if name == "*" else name] = target
            elif isinstance(statement, FunctionNode):
                self._function(module.name, statement)
                bound[statement.name] = f"{module.name}.{statement.name}"
            elif isinstance(statement, ast.ClassDef):
                self._class(module.name, statement)
                bound[statement.name] = f"{module.name}.{statement.name}"
            elif isinstance(statement, ast.Assign) and (chain := dotted(statement.value)):
                for place in statement.targets:
                    if isinstance(place, ast.Name) and place.id != chain.split(".")[0]:
                        bound[place.id] = f"{module.name}.{chain}"

    def _function(self, scope: str, node: FunctionNode) -> None:
        name = f"{scope}.{node.name}"
        self.index.functions[name] = (self.module, node)
        for statement in statements(node.body):
            if isinstance(statement, FunctionNode):
                self._function(name, statement)
            elif isinstance(statement, ast.ClassDef):
                self._class(name, statement)

    def _class(self, scope: str, node: ast.ClassDef) -> None:
        name = f"{scope}.{node.name}"
        info = ClassInfo(name, self.module, node, [base for base in map(dotted, node.bases) if base])
        for statement in statements(node.body):
            if isinstance(statement, FunctionNode):
                info.methods[statement.name] = statement
                self._function(name, statement)
            elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                info.annotations[statement.target.id] = statement.annotation
            elif isinstance(statement, ast.ClassDef):
                self._class(name, statement)
        self.index.classes[name] = info


class Definitions(Generic[Kind]):
    """Definitions by dotted name, looked up in the modules whose names begin it, which are parsed only then."""

    def __init__(self, tree: Tree, pick: Callable[[Index], dict[str, Kind]]) -> None:
        self._tree = tree
        self._pick = pick
        self._known: dict[str, Kind | None] = {}

    def get(self, name: str) -> Kind | None:
        """The definition, or None."""
        if name not in self._known:
            self._known[name] = self._look_up(name)
        return self._known[name]

    def _look_up(self, name: str) -> Kind | None:
        prefix = name
        while prefix := prefix.rpartition(".")[0]:
            module = self._tree.modules.get(prefix)
            if module is not None and (found := self._pick(index_of(module)).get(name)) is not None:
                return found
        return None

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.get(name) is not None

    def __getitem__(self, name: str) -> Kind:
        found = self.get(name)
        if found is None:
            raise KeyError(name)
        return found


class Names:
    """The way from a dotted name to what it stands for, through the bindings of the modules on the way."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.classes = Definitions(tree, lambda index: index.classes)
        self.functions = Definitions(tree, lambda index: index.functions)

    def _bound(self, module: str) -> dict[str, str]:
        return index_of(self.tree.modules[module]).bound

    def resolve_in(self, module: Module, name: str) -> str | None:
        """What a dotted name, as written at the top of a module, stands for; None when unbound."""
        first, _, rest = name.partition(".")
        bound = index_of(module).bound
        target: str | None = bound.get(first)
        if target is None:
            for star in (key for key in bound if key.startswith("* ")):
                source = bound[star]
                if source in self.tree.modules and (
                    first in self._bound(source) or f"{source}.{first}" in self.functions
                ):
                    target = f"{source}.{first}"
                    break
        if target is None:
            return None
        return self.resolve(f"{target}.{rest}" if rest else target)

    def resolve(self, name: str, _seen: frozenset[str] = frozenset()) -> str:
        """The definition behind a full dotted name, through re-exports, aliases and bases."""
        if name in self.functions or name in self.classes or name in self.tree.modules or name in _seen:
            return name
        seen = _seen | {name}
        parts = name.split(".")
        for cut in range(len(parts) - 1, 0, -1):
            prefix, rest = ".".join(parts[:cut]), parts[cut:]
            if prefix in self.tree.modules:
                target = self._bound(prefix).get(rest[0]) or self._through_star(prefix, rest[0])
                if target is None:
                    return name
                resolved = ".".join([target, *rest[1:]])
                return name if resolved == name else self.resolve(resolved, seen)
            if prefix in self.classes and len(rest) == 1:
                return self.method(prefix, rest[0]) or name
        return name

    def _through_star(self, module: str, name: str) -> str | None:
        for key, source in self._bound(module).items():
            if key.startswith("* ") and source in self.tree.modules and name in self._bound(source):
                return f"{source}.{name}"
        return None

    def bases(self, name: str) -> Iterator[str]:
        """The class and its known ancestors, nearest first."""
        pending, seen = [name], set()
        while pending:
            current = pending.pop(0)
            if current in seen:
                continue
            seen.add(current)
            yield current
            info = self.classes.get(current)
            for base in info.bases if info else ():
                found = self.resolve_in(info.module, base) if info else None
                pending.append(found or base)

    def method(self, class_name: str, method: str) -> str | None:
        """The dotted name of a method where it is defined, looked up along the bases."""
        for base in self.bases(class_name):
            if base in self.classes and method in self.classes[base].methods:
                return f"{base}.{method}"
        return None
