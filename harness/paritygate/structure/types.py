"""Which classes a value can be an instance of, as far as annotations, constructors and assignments tell."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from paritygate.structure.names import FunctionNode, Names, constant_getattr, dotted, imported, statements
from paritygate.structure.source import Module

# A class by its dotted name, or `[]name`: a container of instances of it.
Kinds = frozenset[str]
NOTHING: Kinds = frozenset()

CONTAINERS = {
    "list", "tuple", "set", "frozenset", "dict", "deque", "defaultdict", "OrderedDict", "Iterator",
    "Iterable", "Sequence", "Mapping", "MutableMapping", "Generator", "Collection", "AsyncIterator", "Queue",
}  # fmt: skip
ELEMENT_METHODS = {"pop", "popleft", "get", "popitem", "get_nowait"}


@dataclass
class Scope:
    """What names mean inside one function, class body or module; `caller` is its dotted name."""

    module: Module
    caller: str
    class_name: str | None = None
    parent: Scope | None = None
    bound: set[str] = field(default_factory=set)
    aliases: dict[str, str] = field(default_factory=dict)
    kinds: dict[str, Kinds] = field(default_factory=dict)


def container_of(kinds: Kinds) -> Kinds:
    return frozenset(f"[]{kind}" for kind in kinds)


def element_of(kinds: Kinds) -> Kinds:
    return frozenset(kind[2:] for kind in kinds if kind.startswith("[]"))


class Types:
    """Inference over one tree: flow-insensitive, one definition at a time, never guessing from a name."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self._attributes: dict[str, dict[str, Kinds]] = {}

    def resolve(self, scope: Scope, name: str) -> str | None:
        """The definition behind a dotted name as written in a scope; None when a local value hides it."""
        first, _, rest = name.partition(".")
        current: Scope | None = scope
        while current is not None:
            if first in current.aliases:
                target = current.aliases[first]
                return self.names.resolve(f"{target}.{rest}" if rest else target)
            if first in current.bound:
                return None
            current = current.parent
        return self.names.resolve_in(scope.module, name)

    def annotation(self, scope: Scope, node: ast.expr | None) -> Kinds:
        """The classes that an annotation names; `X | None` is X, `list[X]` a container of X."""
        if node is None:
            return NOTHING
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            try:
                return self.annotation(scope, ast.parse(node.value, mode="eval").body)
            except SyntaxError:
                return NOTHING
        if isinstance(node, ast.BinOp):
            return self.annotation(scope, node.left) | self.annotation(scope, node.right)
        if isinstance(node, ast.Subscript):
            outer = (dotted(node.value) or "").rpartition(".")[2]
            inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            kinds = NOTHING.union(*(self.annotation(scope, item) for item in inner))
            if outer in CONTAINERS:
                return container_of(kinds)
            return kinds if outer in {"Optional", "Union", "Annotated", "Final", "ClassVar"} else NOTHING
        name = dotted(node)
        target = self.resolve(scope, name) if name else None
        if target is None and name == "Self" and scope.class_name:
            target = scope.class_name
        if target and target.rpartition(".")[2] == "Self" and scope.class_name:
            target = scope.class_name
        return frozenset([target]) if target and target in self.names.classes else NOTHING

    def attribute(self, class_name: str, attribute: str) -> Kinds:
        """The classes of `instance.attribute`, from the class body and from what methods assign to self."""
        found = NOTHING
        for base in self.names.bases(class_name):
            if base in self.names.classes:
                found |= self._of_class(base).get(attribute, NOTHING)
        return found

    def _of_class(self, class_name: str) -> dict[str, Kinds]:
        if class_name in self._attributes:
            return self._attributes[class_name]
        kinds: dict[str, Kinds] = {}
        self._attributes[class_name] = kinds  # set first: attributes may be defined by each other
        info = self.names.classes[class_name]
        body = Scope(info.module, class_name, class_name)
        for name, node in info.annotations.items():
            kinds[name] = self.annotation(body, node)
        for name, method in info.methods.items():
            if any(dotted(decorator) in {"property", "cached_property", "functools.cached_property"}
                   for decorator in method.decorator_list):  # fmt: skip
                kinds[name] = self.annotation(body, method.returns)
            scope = self.function_scope(method, body, f"{class_name}.{name}")
            for statement in statements(method.body):
                targets, value = assigned(statement)
                for target in targets:
                    if isinstance(target, ast.Attribute) and dotted(target.value) == "self":
                        stated = getattr(statement, "annotation", None)
                        found = self.annotation(scope, stated) if stated else self.value(scope, value)
                        kinds[target.attr] = kinds.get(target.attr, NOTHING) | found
        return kinds

    def value(self, scope: Scope, node: ast.expr | None) -> Kinds:
        """The classes that an expression can be an instance of."""
        if isinstance(node, ast.Name):
            current: Scope | None = scope
            while current is not None:
                if node.id in current.kinds:
                    return current.kinds[node.id]
                if node.id in current.bound:
                    return NOTHING
                current = current.parent
            return NOTHING
        if isinstance(node, ast.Await | ast.Starred | ast.NamedExpr):
            return self.value(scope, node.value)
        if isinstance(node, ast.IfExp):
            return self.value(scope, node.body) | self.value(scope, node.orelse)
        if isinstance(node, ast.BoolOp):
            return NOTHING.union(*(self.value(scope, item) for item in node.values))
        if isinstance(node, ast.List | ast.Tuple | ast.Set):
            return container_of(NOTHING.union(*(self.value(scope, item) for item in node.elts)))
        if isinstance(node, ast.Subscript):
            return element_of(self.value(scope, node.value))
        if isinstance(node, ast.Call) and constant_getattr(node) is None:
            return self._result(scope, node)
        owner, name = _member(node)
        if owner is None:
            return NOTHING
        return NOTHING.union(
            *(self.attribute(kind, name) for kind in self.value(scope, owner) if not kind.startswith("[]"))
        )

    def _result(self, scope: Scope, call: ast.Call) -> Kinds:
        found = NOTHING
        for target in self.callees(scope, call.func):
            if target in self.names.classes:
                found |= {target}
            elif target in self.names.functions:
                module, function = self.names.functions[target]
                of_class = target.rpartition(".")[0]
                inside = of_class if of_class in self.names.classes else None
                found |= self.annotation(Scope(module, target, inside), function.returns)
        owner, name = _member(call.func)
        if owner is not None and name in ELEMENT_METHODS:
            found |= element_of(self.value(scope, owner))
        if owner is not None and name in {"values", "copy"}:
            found |= frozenset(kind for kind in self.value(scope, owner) if kind.startswith("[]"))
        if dotted(call.func) in {"list", "sorted", "reversed", "tuple", "iter"}:
            found |= NOTHING.union(*(self.value(scope, item) for item in call.args[:1]))
        return found

    def callees(self, scope: Scope, node: ast.expr) -> frozenset[str]:
        """The definitions that an expression can name; empty when nothing tells."""
        name = dotted(node)
        if name:
            target = self.resolve(scope, name)
            if target:
                return frozenset([target])
        owner, member = _member(node)
        if owner is None:
            return frozenset()
        if isinstance(owner, ast.Call) and dotted(owner.func) == "super" and scope.class_name:
            parents = list(self.names.bases(scope.class_name))[1:]
            return frozenset(filter(None, (self.names.method(parent, member) for parent in parents[:1])))
        kinds = self.value(scope, owner)
        return frozenset(filter(None, (self.names.method(kind, member) for kind in kinds)))

    def module_scope(self, module: Module) -> Scope:
        """The scope of a module: its names are resolved through its bindings, its values are typed here."""
        scope = Scope(module, module.name)
        typed = Scope(module, module.name)
        self.bind_locals(typed, module.tree.body)
        scope.kinds = typed.kinds
        return scope

    def _definitions(self, scope: Scope, value: ast.expr | None) -> set[str]:
        # What `name = value` makes `name` an alias of.
        if value is None or not _member(value)[1]:
            return set()
        names = self.names
        return {n for n in self.callees(scope, value) if n in names.functions or n in names.classes}

    def function_scope(self, function: FunctionNode | ast.Lambda, parent: Scope, caller: str) -> Scope:
        """The scope of a function: parameters by annotation, locals by what is assigned to them."""
        in_class = parent.class_name if parent.caller == parent.class_name else None
        scope = Scope(parent.module, caller, in_class or parent.class_name, parent)
        arguments = function.args
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        every += filter(None, (arguments.vararg, arguments.kwarg))
        for argument in every:
            scope.bound.add(argument.arg)
            scope.kinds[argument.arg] = self.annotation(parent, argument.annotation)
        static = any(dotted(item) == "staticmethod" for item in getattr(function, "decorator_list", ()))
        if in_class and every and not static:
            first = every[0].arg
            if any(dotted(item) == "classmethod" for item in getattr(function, "decorator_list", ())):
                scope.aliases[first] = in_class
            scope.kinds[first] = frozenset([in_class])
        if not isinstance(function, ast.Lambda):
            self.bind_locals(scope, function.body)
        return scope

    def bind_locals(self, scope: Scope, body: list[ast.stmt]) -> None:
        """Add what the statements of a scope bind: imports, nested definitions, aliases and typed values."""
        body = list(statements(body))
        free = {name for item in body if isinstance(item, ast.Global | ast.Nonlocal) for name in item.names}
        for statement in body:
            if isinstance(statement, ast.Import | ast.ImportFrom):
                scope.aliases.update(imported(statement, scope.module))
            elif isinstance(statement, FunctionNode | ast.ClassDef):
                scope.aliases[statement.name] = f"{scope.caller}.{statement.name}"
            for name in bound_names(statement, walrus=scope.module.has_walrus):
                if name not in free:
                    scope.bound.add(name)
        for statement in body:
            targets, value = assigned(statement)
            for target in targets:
                if isinstance(target, ast.Name):
                    stated = getattr(statement, "annotation", None)
                    found = self.annotation(scope, stated) if stated else self.value(scope, value)
                    scope.kinds[target.id] = scope.kinds.get(target.id, NOTHING) | found
                    if len(known := self._definitions(scope, value)) == 1:
                        scope.aliases[target.id] = known.pop()
            if isinstance(statement, ast.For | ast.AsyncFor) and isinstance(statement.target, ast.Name):
                found = element_of(self.value(scope, statement.iter))
                scope.kinds[statement.target.id] = scope.kinds.get(statement.target.id, NOTHING) | found
            if isinstance(statement, ast.With | ast.AsyncWith):
                for item in statement.items:
                    if isinstance(item.optional_vars, ast.Name):
                        scope.kinds[item.optional_vars.id] = self.value(scope, item.context_expr)


def assigned(statement: ast.stmt) -> tuple[list[ast.expr], ast.expr | None]:
    """The targets and the value of an assignment; no targets for any other statement."""
    if isinstance(statement, ast.Assign):
        return statement.targets, statement.value
    if isinstance(statement, ast.AnnAssign):
        return [statement.target], statement.value
    return [], None


def bound_names(statement: ast.stmt, *, walrus: bool = True) -> set[str]:
    """The plain names that a statement itself assigns, in loop targets too, and by `:=` where there may be one."""
    found: set[str] = set()
    pending: list[ast.AST] = [statement] if walrus else _targets(statement)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, ast.stmt | ast.Lambda | ast.comprehension):
                pending.append(child)
    return found


def _targets(statement: ast.stmt) -> list[ast.AST]:
    match statement:
        case ast.Assign():
            return list(statement.targets)
        case ast.AnnAssign() | ast.AugAssign() | ast.For() | ast.AsyncFor():
            return [statement.target]
        case ast.With() | ast.AsyncWith():
            return [item.optional_vars for item in statement.items if item.optional_vars is not None]
    return []


def _member(node: ast.AST | None) -> tuple[ast.expr | None, str]:
    """(object, name) of `object.name` or `getattr(object, "name")`; a plain name has no object."""
    if isinstance(node, ast.Attribute):
        return node.value, node.attr
    named = constant_getattr(node) if node is not None else None
    if named:
        return named
    return None, node.id if isinstance(node, ast.Name) else ""
