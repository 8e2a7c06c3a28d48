"""Rules about who imports whom: layers with one direction and no cycle, packages out of reach for others."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from paritygate.structure.findings import Findings, Hit
from paritygate.structure.glob import matches
from paritygate.structure.import_scan import imports_in
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


def imports_of(tree: Tree, modules: Iterable[Module]) -> list[Import]:
    """Every import of some modules of a tree."""
    found = []
    for module in modules:
        for item in tree.remember("imports", module.path, partial(imports_in, module)):
            target = _module_of(item.name, tree)
            found.append(Import(module.name, target, module.path, item.line, item.typing_only))
    return found


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
    if rule.layers:
        under = [module for module in tree.modules.values() if _under(module.name, rule.package)]
        return _layers(rule, tree, imports_of(tree, under))
    return _forbidden(rule, tree, imports_of(tree, _can_import(rule, tree)))


def _can_import(rule: Imports, tree: Tree) -> list[Module]:
    """The modules of `of` that can import a forbidden package: they name it, or lie in it."""
    return [
        module
        for module in tree.modules.values()
        if _under(module.name, rule.of)
        and any(
            module.mentions(package.rpartition(".")[2]) or _under(module.name, package)
            for package in rule.forbid
        )
    ]


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
    for first in sorted(edges):
        if first in state:
            continue
        state[first] = 1
        trail = [(first, iter(edges[first].items()))]
        while trail:
            module, rest = trail[-1]
            for target, item in rest:
                if state.get(target) == 1:
                    names = [name for name, _ in trail]
                    cycle = " > ".join([*names[names.index(target) :], target])
                    hits.append(Hit(item.path, item.line, f"closes the import cycle {cycle}"))
                elif target not in state:
                    state[target] = 1
                    trail.append((target, iter(edges.get(target, {}).items())))
                    break
            else:
                state[module] = 2
                trail.pop()
    return hits
