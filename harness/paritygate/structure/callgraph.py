"""Who uses what: every call and reference in a tree, resolved to the definition; what cannot be is listed."""

from __future__ import annotations

import ast
import builtins
import enum
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase

from paritygate.structure.names import FunctionNode, Names, constant_getattr, dotted, imported
from paritygate.structure.source import Tree
from paritygate.structure.types import Scope, Types, bound_names, element_of

COMPREHENSIONS = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
BY_STRING = {"importlib.import_module", "__import__", "eval", "exec", "globals", "locals", "vars"}


class UseKind(enum.StrEnum):
    CALL = "calls"
    REFERENCE = "refers to"
    UNRESOLVED = "calls by name"  # the receiver's class is not known: `target` is the bare name
    DYNAMIC = "calls dynamically"  # no name at all: a value, a table entry, a string


@dataclass(frozen=True)
class Use:
    """One place that calls or refers to `target` (dotted); `caller` is the definition around it."""

    target: str
    path: str
    line: int
    caller: str
    kind: UseKind


class CallGraph:
    """Every use in a tree, by target; built once, immutable after."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.names = Names(tree)
        self.types = Types(self.names)
        self.uses: list[Use] = []
        for module in tree.modules.values():
            self._body(module.tree.body, self.types.module_scope(module))
        self._by_target: dict[str, list[Use]] = defaultdict(list)
        self._by_caller: dict[str, list[Use]] = defaultdict(list)
        for use in self.uses:
            self._by_target[use.target].append(use)
            self._by_caller[use.caller].append(use)

    def uses_of(self, target: str) -> list[Use]:
        """The calls and references that reach `target`, also through a base class that declares it."""
        names = {target}
        owner, _, member = target.rpartition(".")
        if owner in self.names.classes:
            names |= {f"{base}.{member}" for base in self.names.bases(owner)}
        return [use for name in names for use in self._by_target.get(name, ())]

    def unresolved(self, name: str) -> list[Use]:
        """The calls of some object's `name` whose class is not known."""
        return [use for use in self._by_target.get(name, ()) if use.kind is UseKind.UNRESOLVED]

    def dynamic(self) -> list[Use]:
        """The calls that no name leads to."""
        return [use for use in self.uses if use.kind is UseKind.DYNAMIC]

    def called_by(self, caller: str) -> set[str]:
        """What a function calls, directly or through functions of the tree."""
        found: set[str] = set()
        pending = [caller]
        while pending:
            for use in self._by_caller.get(pending.pop(), ()):
                if use.kind in (UseKind.CALL, UseKind.REFERENCE) and use.target not in found:
                    found.add(use.target)
                    pending.append(use.target)
        return found

    def _add(self, target: str, node: ast.AST, scope: Scope, kind: UseKind) -> None:
        self.uses.append(Use(target, scope.module.path, getattr(node, "lineno", 0), scope.caller, kind))

    def _body(self, body: list[ast.stmt], scope: Scope) -> None:
        for statement in body:
            self._visit(statement, scope)

    def _visit(self, node: ast.AST, scope: Scope) -> None:
        if isinstance(node, FunctionNode):
            for part in (*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults)):
                self._visit(part, scope)
            self._body(node.body, self.types.function_scope(node, scope, f"{scope.caller}.{node.name}"))
        elif isinstance(node, ast.ClassDef):
            for part in (*node.decorator_list, *node.bases, *(item.value for item in node.keywords)):
                self._visit(part, scope)
            name = f"{scope.caller}.{node.name}"
            self._body(node.body, Scope(scope.module, name, name, scope))
        elif isinstance(node, ast.Lambda):
            self._visit(node.body, self.types.function_scope(node, scope, scope.caller))
        elif isinstance(node, COMPREHENSIONS):
            self._comprehension(node, scope)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            if scope.parent is None:
                return
            scope.aliases.update(imported(node, scope.module))
        elif isinstance(node, ast.Call):
            self._call(node, scope)
        elif isinstance(node, ast.Attribute | ast.Name):
            self._reference(node, scope)
        elif isinstance(node, ast.AnnAssign):
            for part in filter(None, (node.target, node.value)):
                self._visit(part, scope)
        else:
            for child in ast.iter_child_nodes(node):
                self._visit(child, scope)

    def _comprehension(self, node: ast.AST, scope: Scope) -> None:
        inner = Scope(scope.module, scope.caller, scope.class_name, scope)
        for generator in node.generators:  # type: ignore[attr-defined]
            self._visit(generator.iter, inner)
            inner.bound |= bound_names(ast.Assign([generator.target], ast.Constant(0)))
            if isinstance(generator.target, ast.Name):
                inner.kinds[generator.target.id] = element_of(self.types.value(inner, generator.iter))
            for condition in generator.ifs:
                self._visit(condition, inner)
        for part in (getattr(node, name, None) for name in ("elt", "key", "value")):
            if part is not None:
                self._visit(part, inner)

    def _call(self, node: ast.Call, scope: Scope) -> None:
        named = constant_getattr(node)
        if named is not None:
            self._reference(node, scope)
        else:
            self._callee(node.func, scope)
        for part in (*node.args, *(keyword.value for keyword in node.keywords)):
            self._visit(part, scope)

    def _callee(self, func: ast.expr, scope: Scope) -> None:
        targets = self.types.callees(scope, func)
        for target in targets:
            self._add(target, func, scope, UseKind.CALL)
            if target in self.names.classes and (made := self.names.method(target, "__init__")):
                self._add(made, func, scope, UseKind.CALL)
        name = dotted(func)
        if targets & BY_STRING:
            self._add(name or "", func, scope, UseKind.DYNAMIC)
        if isinstance(func, ast.Attribute):
            if not targets:
                self._add(func.attr, func, scope, UseKind.UNRESOLVED)
            self._visit_owner(func.value, scope)
        elif named := constant_getattr(func):
            if not targets:
                self._add(named[1], func, scope, UseKind.UNRESOLVED)
            self._visit(named[0], scope)
        elif isinstance(func, ast.Name):
            by_value = not targets and self._is_value(func.id, scope)
            if by_value or func.id in BY_STRING:
                self._add(func.id, func, scope, UseKind.DYNAMIC)
            elif not targets and not hasattr(builtins, func.id):
                self._add(func.id, func, scope, UseKind.UNRESOLVED)
        elif name is None:
            self._add(ast.unparse(func)[:60], func, scope, UseKind.DYNAMIC)
            self._visit(func, scope)

    def _is_value(self, name: str, scope: Scope | None) -> bool:
        while scope is not None:
            if name in scope.bound:
                return f"{scope.caller}.{name}" not in self.names.functions
            scope = scope.parent
        return False

    def _visit_owner(self, owner: ast.expr, scope: Scope) -> None:
        # `a.b.call()`: the receiver is used too, unless it only spells a module or a class on the way.
        if dotted(owner) is None or constant_getattr(owner):
            self._visit(owner, scope)
        elif not isinstance(owner, ast.Name):
            self._reference(owner, scope)

    def _reference(self, node: ast.expr, scope: Scope) -> None:
        if isinstance(getattr(node, "ctx", None), ast.Store | ast.Del):
            if isinstance(node, ast.Attribute):
                self._visit_owner(node.value, scope)
            return
        targets = self.types.callees(scope, node)
        for target in targets:
            self._add(target, node, scope, UseKind.REFERENCE)
        if isinstance(node, ast.Attribute) and not targets:
            self._visit_owner(node.value, scope)


def functions_matching(graph: CallGraph, globs: tuple[str, ...]) -> Iterator[tuple[str, str, int]]:
    """(dotted name, path, line) of each function whose dotted name matches a glob."""
    for name, (module, node) in graph.names.functions.items():
        if any(fnmatchcase(name, glob) for glob in globs):
            yield name, module.path, node.lineno
