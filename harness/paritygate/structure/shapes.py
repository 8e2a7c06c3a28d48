"""Rules about the shape of code in any language: absent-structure, only-structure-in, by ast-grep's patterns."""

from __future__ import annotations

import re
from functools import partial

from paritygate.structure.findings import Findings, Hit
from paritygate.structure.glob import matches
from paritygate.structure.pattern import NoAstGrep, lines_of_shape
from paritygate.structure.rules import AbsentStructure, OnlyStructureIn
from paritygate.structure.source import SourceError, Tree
from paritygate.structure.written import dead_exceptions

_WORD = re.compile(r"(?<![$\w])[A-Za-z_]\w*")


def shape_rule(rule: AbsentStructure | OnlyStructureIn, tree: Tree) -> Findings:
    """Every match outside the permitted files is a violation; a permitted file without one is a dead exception.

    Raises SourceError where ast-grep is not installed.
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
        found = lines_of_shape(text, language, structure)
    except NoAstGrep as error:
        raise SourceError(str(error)) from None
    return [Hit(path, line, f"has {' '.join(shape.split())[:100]!r}") for line, shape in found]
