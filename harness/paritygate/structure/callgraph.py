"""Who uses what: every call and reference in a tree, resolved to the definition; what cannot be is listed."""

from __future__ import annotations

import ast
import builtins
import enum
from collections.abc import Iterable
from dataclasses import dataclass

from paritygate.structure.names import FunctionNode, Names, constant_getattr, dotted, imported, index_of
from paritygate.structure.source import Module, Tree
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
    """The uses in a tree, resolved where a question reaches: a file that cannot hold an answer is not parsed."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.names = Names(tree)
        self.types = Types(self.names)
        self._of_module: dict[str, list[Use]] = {}
        self._found: list[Use] = []

    def uses_in(self, module: Module) -> list[Use]:
        """Every use in one module."""
        if module.name not in self._of_module:
            found = self._found = []
            self._body(module.tree.body, self.types.module_scope(module))
            self._of_module[module.name] = found
        return self._of_module[module.name]

    def naming(self, name: str) -> list[Module]:
        """The modules that can name the definition `name`, by its own name or by one that another module gave it."""
        wanted = [name.rpartition(".")[2]]
        every = self.tree.modules.values()
        if wanted == ["__init__"]:  # called under the name of any subclass
            return list(every)
        found: dict[str, Module] = {}
        for word in wanted:
            for module in every:
                if module.name in found or not module.mentions(word):
                    continue
                found[module.name] = module
            for module in list(found.values()):
                for alias, target in index_of(module).bound.items():
                    if (
                        target.rpartition(".")[2] in wanted
                        and alias not in wanted
                        and not alias.startswith("* ")
                    ):
                        wanted.append(alias)
        return [module for module in every if module.name in found]

    def uses_of(self, target: str) -> list[Use]:
        """The calls and references that reach `target`, also through a base class that declares it."""
        names = {target}
        owner, _, member = target.rpartition(".")
        if owner in self.names.classes:
            names |= {f"{base}.{member}" for base in self.names.bases(owner)}
        return [use for module in self.naming(target) for use in self.uses_in(module) if use.target in names]

    def unresolved(self, name: str) -> list[Use]:
        """The calls of some object's `name` whose class is not known."""
        modules = [module for module in self.tree.modules.values() if module.mentions(name)]
        uses = (use for module in modules for use in self.uses_in(module))
        return [use for use in uses if use.kind is UseKind.UNRESOLVED and use.target == name]

    def dynamic(self, modules: Iterable[Module] | None = None) -> list[Use]:
        """The calls that no name leads to, in some modules or in all."""
        among = self.tree.modules.values() if modules is None else modules
        return [use for module in among for use in self.uses_in(module) if use.kind is UseKind.DYNAMIC]

    def called_by(self, caller: str) -> set[str]:
        """What a function calls, directly or through functions of the tree."""
        found: set[str] = set()
        pending = [caller]
        while pending:
            name = pending.pop()
            defined = self.names.functions.get(name)
            info = self.names.classes.get(name)
            module = defined[0] if defined else info.module if info else self.tree.modules.get(name)
            for use in self.uses_in(module) if module is not None else ():
                if use.caller != name or use.kind not in (UseKind.CALL, UseKind.REFERENCE):
                    continue
                if use.target not in found:
                    found.add(use.target)
                    pending.append(use.target)
        return found

    def _add(self, target: str, node: ast.AST, scope: Scope, kind: UseKind) -> None:
        self._found.append(Use(target, scope.module.path, getattr(node, "lineno", 0), scope.caller, kind))

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
