"""Rules about the shape of code in any language: absent-structure, only-structure-in, by ast-grep's patterns."""

from __future__ import annotations

import re
from functools import partial

from paritygate.structure.findings import Findings, Hit
from paritygate.structure.glob import matches
from paritygate.structure.rules import AbsentStructure, OnlyStructureIn
from paritygate.structure.source import SourceError, Tree
from paritygate.structure.written import dead_exceptions

_WORD = re.compile(r"(?<![$\w])[A-Za-z_]\w*")


def shape_rule(rule: AbsentStructure | OnlyStructureIn, tree: Tree) -> Findings:
    """Every match outside the permitted files is a violation; a permitted file without one is a dead exception.

    Raises SourceError where ast-grep is not installed, or does not know the language or the pattern.
    """
    found = Findings()
    only_in = rule.only_in if isinstance(rule, OnlyStructureIn) else ()
    permitted = (*only_in, *rule.allow)
    selected = list(tree.select(rule.files))
    if not selected:
        found.dead.append(f"no file matches {', '.join(rule.files)}")
    words = _WORD.findall(rule.structure)
    for path in selected:
        # A match spells every word of the pattern, so a file without one of them need not be parsed.
        if not all(word in tree.files[path] for word in words):
            continue
        find = partial(_shapes, tree.files[path], path, rule.language, rule.structure)
        hits = tree.remember(("shape", rule.language, rule.structure), path, find)
        (found.places if matches(path, permitted) else found.violations).extend(hits)
    dead_exceptions(permitted, found)
    if not permitted and selected:
        found.places.append(Hit("", 0, f"{len(selected)} files read, none may have that shape"))
    return found


def _shapes(text: str, path: str, language: str, structure: str) -> list[Hit]:
    try:
        # Optional and compiled: only a policy with such a rule needs it.
        from ast_grep_py import SgRoot
    except ImportError:
        raise SourceError(
            "rules of kind absent-structure and only-structure-in need ast-grep: pip install 'paritygate[rules]'"
        ) from None
    try:
        found = SgRoot(text, language).root().find_all(pattern=structure)
    except (RuntimeError, ValueError, TypeError) as error:
        causes = re.findall(r"^\s+\d+: (.*)", str(error).partition("Stack backtrace")[0], re.MULTILINE)
        told = causes[-1] if causes else str(error)
        raise SourceError(f"{structure!r} is no ast-grep pattern of {language}: {told}") from error
    return [
        Hit(path, node.range().start.line + 1, f"has {' '.join(node.text().split())[:100]!r}")
        for node in found
    ]
