"""Rules about who imports whom: layers with one direction and no cycle, packages out of reach for others."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from paritygate.structure.findings import Findings, Hit
from paritygate.structure.glob import matches
from paritygate.structure.names import dotted, imported
from paritygate.structure.rules import Imports
from paritygate.structure.source import Module, Tree


@dataclass(frozen=True)
class Import:
    """One import of `target`, a module of the tree or a dotted name outside it."""

    importer: str
    target: str
    path: str
    line: int
    typing_only: bool


def imports_of(tree: Tree) -> list[Import]:
    """Every import in a tree, inside functions and by constant string too."""
    found = []
    for module in tree.modules.values():
        typing_only = {
            inner
            for node in ast.walk(module.tree)
            if isinstance(node, ast.If) and (dotted(node.test) or "").endswith("TYPE_CHECKING")
            for inner in ast.walk(node)
        }
        for node in ast.walk(module.tree):
            for name in _imported_by(node, module):
                target = _module_of(name, tree)
                line = getattr(node, "lineno", 0)
                found.append(Import(module.name, target, module.path, line, node in typing_only))
    return found


def _imported_by(node: ast.AST, module: Module) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        yield from (target for _, target in imported(node, module))
    elif isinstance(node, ast.Call) and dotted(node.func) in {
        "importlib.import_module",
        "import_module",
        "__import__",
    }:
        yield from (str(item.value) for item in node.args[:1] if isinstance(item, ast.Constant))


def _module_of(name: str, tree: Tree) -> str:
    # `from package import thing`: the module when thing is one, else the package that holds it.
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        prefix = ".".join(parts[:cut])
        if prefix in tree.modules:
            return prefix
    return name


def _under(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def check_imports(rule: Imports, tree: Tree) -> Findings:
    """Imports against the layers or against the forbidden packages of the rule."""
    every = imports_of(tree)
    return _layers(rule, tree, every) if rule.layers else _forbidden(rule, tree, every)


def _forbidden(rule: Imports, tree: Tree, every: list[Import]) -> Findings:
    found = Findings()
    subjects = [name for name in tree.modules if _under(name, rule.of)]
    if not subjects:
        found.dead.append(f"no module is under {rule.of}")
    for item in every:
        if not _under(item.importer, rule.of):
            continue
        for package in rule.forbid:
            if _under(item.target, package):
                hit = Hit(item.path, item.line, f"{item.importer} imports {item.target}")
                (found.places if matches(item.path, rule.only_in) else found.violations).append(hit)
    for glob in rule.only_in:
        if not any(matches(hit.path, (glob,)) for hit in found.places):
            found.dead.append(
                f"nothing in {glob} imports {' or '.join(rule.forbid)}, where the rule expects it"
            )
    if not rule.only_in and subjects:
        found.places.append(Hit("", 0, f"{len(subjects)} modules of {rule.of} read, none may import it"))
    return found


def _layers(rule: Imports, tree: Tree, every: list[Import]) -> Findings:
    found = Findings()
    level = {f"{rule.package}.{name}": number for number, layer in enumerate(rule.layers) for name in layer}

    def layer_of(module: str) -> int | None:
        while module:
            if module in level:
                return level[module]
            module = module.rpartition(".")[0]
        return None

    for name in level:
        if not any(_under(module, name) for module in tree.modules):
            found.dead.append(f"no module is under {name}, which the rule puts in a layer")
    for module in tree.modules.values():
        if (
            _under(module.name, rule.package)
            and module.name != rule.package
            and layer_of(module.name) is None
        ):
            found.violations.append(Hit(module.path, 1, f"{module.name} is in no layer of the rule"))
    edges: dict[str, dict[str, Import]] = {}
    for item in every:
        if not _under(item.importer, rule.package) or not _under(item.target, rule.package):
            continue
        if not item.typing_only and item.target != item.importer:
            edges.setdefault(item.importer, {}).setdefault(item.target, item)
        low, high = layer_of(item.importer), layer_of(item.target)
        if low is None or high is None:
            continue
        what = f"{item.importer} imports {item.target}"
        if high > low:
            found.violations.append(Hit(item.path, item.line, f"{what}, which is in a layer above it"))
        elif high < low:
            found.places.append(Hit(item.path, item.line, what))
    found.violations += _cycles(edges)
    return found


def _cycles(edges: dict[str, dict[str, Import]]) -> list[Hit]:
    """One hit for each import that closes a cycle, found depth first."""
    hits: list[Hit] = []
    state: dict[str, int] = {}
    trail: list[str] = []

    def visit(module: str) -> None:
        state[module] = 1
        trail.append(module)
        for target, item in edges.get(module, {}).items():
            if state.get(target) == 1:
                cycle = " > ".join([*trail[trail.index(target) :], target])
                hits.append(Hit(item.path, item.line, f"closes the import cycle {cycle}"))
            elif target not in state:
                visit(target)
        trail.pop()
        state[module] = 2

    for module in sorted(edges):
        if module not in state:
            visit(module)
    return hits
