"""Rules about what is written where: absent-symbol, absent-pattern, only-pattern-in, only-defined-in."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from functools import partial

from paritygate.structure.callgraph import CallGraph
from paritygate.structure.findings import Findings, Hit
from paritygate.structure.glob import matches
from paritygate.structure.names import FunctionNode, dotted, imported
from paritygate.structure.rules import AbsentPattern, AbsentSymbol, OnlyDefinedIn, OnlyPatternIn
from paritygate.structure.source import Module, Tree
from paritygate.structure.types import assigned

ORDER = ast.Lt | ast.LtE | ast.Gt | ast.GtE | ast.Eq | ast.NotEq
TRANSPARENT = {"len", "min", "max", "int", "abs", "sum", "getattr", "round", "divmod"}
ARITHMETIC_CALLS = {"min", "max", "range", "divmod"}


def absent_pattern(rule: AbsentPattern, tree: Tree, policy_path: str) -> Findings:
    """Every matching line outside `allow` is a violation; an allowed file without one is a dead exception.

    The policy itself quotes the pattern and the planted violation, so it is no part of the tree here.
    """
    found, read = _text_hits(rule, rule.allow, tree, policy_path)
    if not rule.allow and read:
        found.places.append(Hit(policy_path, 0, f"{read} files read, none may match"))
    return found


def only_pattern_in(rule: OnlyPatternIn, tree: Tree, policy_path: str) -> Findings:
    """Every matching line outside `only_in` and `allow` is a violation; none inside means a dead rule."""
    return _text_hits(rule, (*rule.only_in, *rule.allow), tree, policy_path)[0]


def _text_hits(
    rule: AbsentPattern | OnlyPatternIn, permitted: tuple[str, ...], tree: Tree, policy_path: str
) -> tuple[Findings, int]:
    """The matching lines, and how many files were read. The policy and a baseline quote what they are about."""
    found = Findings()
    expression = re.compile(rule.pattern)
    selected = [path for path in tree.select(rule.files) if path not in (policy_path, rule.baseline)]
    if not selected:
        found.dead.append(f"no file matches {', '.join(rule.files)}")
    for path in selected:
        hits = tree.remember(("lines", rule.pattern), path, partial(_matching_lines, expression, tree, path))
        (found.places if matches(path, permitted) else found.violations).extend(hits)
    dead_exceptions(permitted, found)
    return found, len(selected)


def _matching_lines(expression: re.Pattern[str], tree: Tree, path: str) -> list[Hit]:
    text = tree.files[path]
    # A pattern that cannot match the whole text cannot match a line of it, unless it looks at what is around.
    looks_around = "(?" in expression.pattern or "\\A" in expression.pattern or "\\Z" in expression.pattern
    if not looks_around and not re.compile(expression.pattern, re.MULTILINE).search(text):
        return []
    return [
        Hit(path, number, f"reads {line.strip()[:100]!r}")
        for number, line in enumerate(text.splitlines(), 1)
        if expression.search(line)
    ]


def absent_symbol(rule: AbsentSymbol, graph: CallGraph) -> Findings:
    """Every definition, import and use of the symbol outside `allow` is a violation."""
    found = Findings()
    bare = "." not in rule.symbol
    hits: list[Hit] = []
    last = rule.symbol.rpartition(".")[2]
    for module in graph.tree.modules.values():
        if module.mentions(last) or last in module.name.split("."):
            find = partial(_namings, module, rule.symbol)
            hits += graph.tree.remember(("symbol", rule.symbol), module.path, find)
    if not bare:
        hits += [Hit(use.path, use.line, f"{use.kind} {rule.symbol}") for use in graph.uses_of(rule.symbol)]
    for hit in hits:
        (found.places if matches(hit.path, rule.allow) else found.violations).append(hit)
    dead_exceptions(rule.allow, found)
    if not rule.allow:
        found.places.append(Hit("", 0, f"{len(graph.tree.modules)} modules read, none may name it"))
    return found


def _namings(module: Module, symbol: str) -> list[Hit]:
    bare = "." not in symbol
    return [
        Hit(module.path, getattr(node, "lineno", 0), f"names {symbol}")
        for node in ast.walk(module.tree)
        for name in _mentioned(node, module)
        if name == symbol or (bare and symbol in name.split("."))
    ]


def only_defined_in(rule: OnlyDefinedIn, tree: Tree) -> Findings:
    """Every match outside `only_in` is a violation, `allow` excepted; none inside means a dead rule."""
    found = Findings()
    finder: Callable[[Module, re.Pattern[str]], Iterator[tuple[int, str]]]
    for text, finder in (
        (rule.defines, _definitions),
        (rule.compares, _comparisons),
        (rule.computes, _computations),
    ):
        if not text:
            continue
        expression = re.compile(text)
        for module in tree.modules.values():
            if not matches(module.path, rule.files) or not _can_name(text, expression, module):
                continue
            written = tree.remember(
                (finder.__name__, text), module.path, partial(_all, finder, module, expression)
            )
            inside = matches(module.path, (*rule.only_in, *rule.allow))
            (found.places if inside else found.violations).extend(
                Hit(module.path, line, what) for line, what in written
            )
    dead_exceptions((*rule.only_in, *rule.allow), found)
    return found


def _all(
    finder: Callable[[Module, re.Pattern[str]], Iterator[tuple[int, str]]],
    module: Module,
    expression: re.Pattern[str],
) -> list[tuple[int, str]]:
    return list(finder(module, expression))


def _can_name(text: str, expression: re.Pattern[str], module: Module) -> bool:
    # What matches a whole identifier matches the text that holds it, unless it looks at what is around.
    return any(sign in text for sign in ("(?", "^", "$", "\\")) or expression.search(module.text) is not None


def dead_exceptions(globs: tuple[str, ...], found: Findings) -> None:
    for glob in globs:
        if not any(matches(hit.path, (glob,)) for hit in found.places):
            found.dead.append(f"nothing in {glob} matches, where the rule expects it")


def _mentioned(node: ast.AST, module: Module) -> Iterator[str]:
    if isinstance(node, FunctionNode | ast.ClassDef):
        yield node.name
        yield f"{module.name}.{node.name}"
    elif isinstance(node, ast.Import | ast.ImportFrom):
        yield from (target for _, target in imported(node, module))
    elif isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Attribute):
        yield node.attr
    elif isinstance(node, ast.arg | ast.keyword) and node.arg:
        yield node.arg


def _operand(node: ast.AST) -> Iterator[ast.AST]:
    # What is handed to another function is judged where that function tests or computes it.
    pending = [node]
    while pending:
        inner = pending.pop()
        yield inner
        if not isinstance(inner, ast.Call) or dotted(inner.func) in TRANSPARENT:
            pending += ast.iter_child_nodes(inner)


def _identifiers(node: ast.AST) -> Iterator[str]:
    for inner in _operand(node):
        if isinstance(inner, ast.Name):
            yield inner.id
        elif isinstance(inner, ast.Attribute):
            yield inner.attr
        elif isinstance(inner, ast.Subscript) and isinstance(inner.slice, ast.Constant):
            yield str(inner.slice.value)
        elif isinstance(inner, ast.Call) and dotted(inner.func) == "getattr" and len(inner.args) > 1:
            yield from (str(item.value) for item in inner.args[1:2] if isinstance(item, ast.Constant))


def _definitions(module: Module, expression: re.Pattern[str]) -> Iterator[tuple[int, str]]:
    for node in ast.walk(module.tree):
        names: list[str] = []
        if isinstance(node, FunctionNode | ast.ClassDef):
            names = [node.name]
        elif isinstance(node, ast.stmt):
            names = [target.id for target in assigned(node)[0] if isinstance(target, ast.Name)]
        for name in names:
            if expression.fullmatch(name):
                yield node.lineno, f"defines {name}"  # type: ignore[attr-defined]


def _stand_ins(function: ast.AST, expression: re.Pattern[str]) -> set[str]:
    # `limit = request.max_tokens` makes `limit` another name for it inside that function.
    names: set[str] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets, value = assigned(node)
            chain = dotted(value) if value is not None else None
            if chain and expression.fullmatch(chain.rpartition(".")[2]):
                names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


def _functions(module: Module) -> Iterator[ast.AST]:
    # Outermost functions only: what is nested in them is searched with them.
    pending: list[ast.AST] = list(ast.iter_child_nodes(module.tree))
    rest = ast.Module(body=[], type_ignores=[])
    while pending:
        node = pending.pop()
        if isinstance(node, FunctionNode):
            yield node
        elif isinstance(node, ast.ClassDef):
            pending += ast.iter_child_nodes(node)
        elif isinstance(node, ast.stmt):
            rest.body.append(node)
    yield rest


def _comparisons(module: Module, expression: re.Pattern[str]) -> Iterator[tuple[int, str]]:
    for function in _functions(module):
        stand_ins = _stand_ins(function, expression)
        for node in ast.walk(function):
            if not isinstance(node, ast.Compare) or not any(isinstance(test, ORDER) for test in node.ops):
                continue
            for name in (
                name for operand in (node.left, *node.comparators) for name in _identifiers(operand)
            ):
                if expression.fullmatch(name) or name in stand_ins:
                    yield node.lineno, f"compares {ast.unparse(node)[:90]!r}"
                    break


def _computations(module: Module, expression: re.Pattern[str]) -> Iterator[tuple[int, str]]:
    for node in ast.walk(module.tree):
        operands: list[ast.AST] = []
        if isinstance(node, ast.BinOp) and not isinstance(node.left, ast.Set | ast.List | ast.JoinedStr):
            operands = [node.left, node.right]
        elif isinstance(node, ast.AugAssign):
            operands = [node.target, node.value]
        elif isinstance(node, ast.Call) and dotted(node.func) in ARITHMETIC_CALLS:
            operands = list(node.args)
        elif isinstance(node, ast.Slice):
            operands = [item for item in (node.lower, node.upper, node.step) if item is not None]
        for name in (name for operand in operands for name in _identifiers(operand)):
            if expression.fullmatch(name):
                yield node.lineno, f"computes {ast.unparse(node)[:90]!r}"  # type: ignore[attr-defined]
                break
