"""Rules about who uses what: single-caller, must-call, delegates."""

from __future__ import annotations

import ast
import re
from fnmatch import fnmatchcase

from paritygate.structure.callgraph import CallGraph, Use, UseKind
from paritygate.structure.findings import Findings, Hit
from paritygate.structure.glob import matches
from paritygate.structure.names import index_of
from paritygate.structure.rules import Delegates, MustCall, SingleCaller


def single_caller(rule: SingleCaller, graph: CallGraph) -> Findings:
    """Every use of the target outside `only_from` is a violation; without it, a second caller is."""
    found = Findings()
    target = graph.names.resolve(rule.target)
    if target not in graph.names.functions and target not in graph.names.classes:
        found.dead.append(f"no function or class {rule.target} is defined")
        return found
    name = target.rpartition(".")[2]
    found.dynamic = [_hit(use, use.target) for use in graph.dynamic(graph.naming(target))]
    permitted = (*rule.only_from, *rule.allow)
    uses = [use for use in graph.uses_of(target) if not _inside(use, target)]
    by_name = [use for use in graph.unresolved(name) if not _inside(use, target)]
    if rule.common_name:
        found.unresolved += [_hit(use, name) for use in by_name if not matches(use.path, permitted)]
    else:
        uses += by_name
    for glob in permitted:
        if not any(matches(use.path, (glob,)) for use in uses):
            found.dead.append(f"{glob} does not use {name}")
    if rule.only_from:
        found.places = [_hit(use, name) for use in uses if matches(use.path, rule.only_from)]
        found.violations = [_hit(use, name) for use in uses if not matches(use.path, permitted)]
    else:
        uses = [use for use in uses if not matches(use.path, rule.allow)]
        callers = {use.caller for use in uses}
        found.places = [_hit(use, name) for use in uses]
        if len(callers) > 1:
            found.violations = [_hit(use, name) for use in uses]
    return found


def must_call(rule: MustCall, graph: CallGraph) -> Findings:
    """Each matching function that does not reach the target is a violation."""
    found = Findings()
    target = graph.names.resolve(rule.target)
    if target not in graph.names.functions and target not in graph.names.classes:
        found.dead.append(f"no function or class {rule.target} is defined")
    short = target.rpartition(".")[2]
    for glob in rule.functions:
        matched = _functions_named(glob, graph)
        if not matched:
            found.dead.append(f"no function is named {glob}")
        for name in matched:
            module, node = graph.names.functions[name]
            found.dynamic += [_hit(use, use.target) for use in graph.dynamic([module]) if use.caller == name]
            if target in graph.called_by(name):
                found.places.append(Hit(module.path, node.lineno, f"{node.name} reaches {short}"))
            else:
                found.violations.append(Hit(module.path, node.lineno, f"{node.name} never calls {short}"))
    return found


def _functions_named(glob: str, graph: CallGraph) -> list[str]:
    """The functions whose dotted names match; only modules are parsed whose names can begin such a name."""
    fixed = re.split(r"[*?\[]", glob, maxsplit=1)[0]
    last = glob.rpartition(".")[2]
    found = []
    for module in graph.tree.modules.values():
        if not module.name.startswith(fixed) and not fixed.startswith(f"{module.name}."):
            continue
        if last.isidentifier() and not module.mentions(last):
            continue
        found += [name for name in index_of(module).functions if fnmatchcase(name, glob)]
    return found


def delegates(rule: Delegates, graph: CallGraph) -> Findings:
    """Each public method of the wrapped class that the wrapper lacks, or does not forward, is a violation."""
    found = Findings()
    wrapper = graph.names.classes.get(graph.names.resolve(rule.wrapper))
    wrapped = graph.names.classes.get(graph.names.resolve(rule.wraps))
    for name, info in ((rule.wrapper, wrapper), (rule.wraps, wrapped)):
        if info is None:
            found.dead.append(f"no class {name} is defined")
    if wrapper is None or wrapped is None:
        return found
    hooks = [name for name in wrapped.methods if not name.startswith("_")]
    if not hooks:
        found.dead.append(f"{rule.wraps} has no public method to forward")
    for name in hooks:
        method = wrapper.methods.get(name)
        if method is None:
            what = f"{wrapper.node.name} does not forward {name}"
            found.violations.append(Hit(wrapper.module.path, wrapper.node.lineno, what))
            continue
        caller, own = f"{wrapper.name}.{name}", f"{wrapper.name}.{name}"
        forwarded = any(
            use.caller == caller and use.target.rpartition(".")[2] == name and use.target != own
            for use in graph.uses_in(wrapper.module)
            if use.kind in (UseKind.CALL, UseKind.UNRESOLVED)
        )
        forwarded = forwarded or _reads_property(method, name)
        kept = Hit(wrapper.module.path, method.lineno, f"{wrapper.node.name}.{name} forwards")
        lost = Hit(wrapper.module.path, method.lineno, f"{wrapper.node.name}.{name} does not call {name}")
        (found.places if forwarded else found.violations).append(kept if forwarded else lost)
    return found


def _reads_property(method: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> bool:
    """A property is read and not called: of the same name, of something that is not the wrapper itself."""
    if not any(isinstance(each, ast.Name) and each.id == "property" for each in method.decorator_list):
        return False
    return any(
        isinstance(node, ast.Attribute)
        and node.attr == name
        and not (isinstance(node.value, ast.Name) and node.value.id == "self")
        for node in ast.walk(method)
    )


def _inside(use: Use, target: str) -> bool:
    # Recursion, and a class that names itself, are not another caller.
    return use.caller == target or use.caller.startswith(f"{target}.")


def _hit(use: Use, name: str) -> Hit:
    return Hit(use.path, use.line, f"{use.caller} {use.kind} {name}")
