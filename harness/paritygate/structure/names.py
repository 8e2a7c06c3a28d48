"""What a name means: the definitions, imports and aliases of every module, followed to the definition."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

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


class Names:
    """Every binding at the top of every module, and the way from a dotted name to what it stands for."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.classes: dict[str, ClassInfo] = {}
        self.functions: dict[str, tuple[Module, FunctionNode]] = {}
        self._bound: dict[str, dict[str, str]] = {}
        for module in tree.modules.values():
            self._bound[module.name] = self._bind(module)

    def _bind(self, module: Module) -> dict[str, str]:
        bound: dict[str, str] = {}
        for statement in statements(module.tree.body):
            if isinstance(statement, ast.Import | ast.ImportFrom):
                for name, target in imported(statement, module):
                    bound[f"* {target}" if name == "*" else name] = target
            elif isinstance(statement, FunctionNode):
                self._function(module, module.name, statement)
                bound[statement.name] = f"{module.name}.{statement.name}"
            elif isinstance(statement, ast.ClassDef):
                self._class(module, module.name, statement)
                bound[statement.name] = f"{module.name}.{statement.name}"
            elif isinstance(statement, ast.Assign) and (chain := dotted(statement.value)):
                for place in statement.targets:
                    if isinstance(place, ast.Name) and place.id != chain.split(".")[0]:
                        bound[place.id] = f"{module.name}.{chain}"
        return bound

    def _function(self, module: Module, scope: str, node: FunctionNode) -> None:
        name = f"{scope}.{node.name}"
        self.functions[name] = (module, node)
        for statement in statements(node.body):
            if isinstance(statement, FunctionNode):
                self._function(module, name, statement)
            elif isinstance(statement, ast.ClassDef):
                self._class(module, name, statement)

    def _class(self, module: Module, scope: str, node: ast.ClassDef) -> None:
        name = f"{scope}.{node.name}"
        info = ClassInfo(name, module, node, [base for base in map(dotted, node.bases) if base])
        for statement in statements(node.body):
            if isinstance(statement, FunctionNode):
                info.methods[statement.name] = statement
                self._function(module, name, statement)
            elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                info.annotations[statement.target.id] = statement.annotation
            elif isinstance(statement, ast.ClassDef):
                self._class(module, name, statement)
        self.classes[name] = info

    def resolve_in(self, module: Module, name: str) -> str | None:
        """What a dotted name, as written at the top of a module, stands for; None when unbound."""
        first, _, rest = name.partition(".")
        bound = self._bound[module.name]
        target: str | None = bound.get(first)
        if target is None:
            for star in (key for key in bound if key.startswith("* ")):
                source = bound[star]
                if source in self._bound and (
                    first in self._bound[source] or f"{source}.{first}" in self.functions
                ):
                    target = f"{source}.{first}"
                    break
        if target is None:
            return None
        return self.resolve(f"{target}.{rest}" if rest else target)

    def resolve(self, name: str, _seen: frozenset[str] = frozenset()) -> str:
        """The definition behind a full dotted name, through re-exports, aliases and bases."""
        if name in self.functions or name in self.classes or name in self._bound or name in _seen:
            return name
        seen = _seen | {name}
        parts = name.split(".")
        for cut in range(len(parts) - 1, 0, -1):
            prefix, rest = ".".join(parts[:cut]), parts[cut:]
            if prefix in self._bound:
                target = self._bound[prefix].get(rest[0]) or self._through_star(prefix, rest[0])
                if target is None:
                    return name
                resolved = ".".join([target, *rest[1:]])
                return name if resolved == name else self.resolve(resolved, seen)
            if prefix in self.classes and len(rest) == 1:
                return self.method(prefix, rest[0]) or name
        return name

    def _through_star(self, module: str, name: str) -> str | None:
        for key, source in self._bound[module].items():
            if key.startswith("* ") and source in self._bound and name in self._bound[source]:
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
