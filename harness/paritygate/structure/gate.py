"""The structure gate: every rule over the tree, and over a copy in which its violation is planted."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from paritygate.invocation import Invocation
from paritygate.structure import baseline, importing, shapes, usage, written
from paritygate.structure.callgraph import CallGraph
from paritygate.structure.findings import Findings, Hit
from paritygate.structure.rules import (
    AbsentPattern,
    AbsentStructure,
    AbsentSymbol,
    AnyRule,
    Delegates,
    Imports,
    MustCall,
    OnlyDefinedIn,
    OnlyPatternIn,
    OnlyStructureIn,
    SingleCaller,
    StructurePolicy,
)
from paritygate.structure.source import SourceError, Tree
from paritygate.verdict import Check, Outcome, Verdict

if TYPE_CHECKING:
    from paritygate.policy import Policy

GATE = "structure"
POLICY_PATH = "paritygate.toml"
SHOWN = 50


class Source:
    """A tree with its call graph, built when a rule first asks for it."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self._graph: CallGraph | None = None

    @property
    def graph(self) -> CallGraph:
        """The call graph of the tree."""
        if self._graph is None:
            self._graph = CallGraph(self.tree)
        return self._graph


def evaluate(rule: AnyRule, source: Source) -> Findings:
    """What one rule finds in one tree."""
    match rule:
        case SingleCaller():
            found = usage.single_caller(rule, source.graph)
        case MustCall():
            found = usage.must_call(rule, source.graph)
        case Delegates():
            found = usage.delegates(rule, source.graph)
        case AbsentSymbol():
            found = written.absent_symbol(rule, source.graph)
        case AbsentPattern():
            found = written.absent_pattern(rule, source.tree, POLICY_PATH)
        case OnlyPatternIn():
            found = written.only_pattern_in(rule, source.tree, POLICY_PATH)
        case AbsentStructure() | OnlyStructureIn():
            found = shapes.shape_rule(rule, source.tree)
        case OnlyDefinedIn():
            found = written.only_defined_in(rule, source.tree)
        case Imports():
            found = importing.check_imports(rule, source.tree)
    if not found.places and not found.violations and not found.dead:
        found.dead.append("nothing in the tree is what the rule is about")
    return found.ordered()


def caught(rule: AnyRule, source: Source, clean: Findings) -> list[Hit]:
    """The violations that the planted one adds; SourceError when there is no place to plant it."""
    planted = evaluate(rule, Source(source.tree.planted(rule.planted)))
    known = {(hit.path, hit.what) for hit in clean.violations}
    return [hit for hit in planted.violations if (hit.path, hit.what) not in known]


def judge(rule: AnyRule, source: Source) -> Check:
    """One rule: held, or broken, or dead; source that it cannot read is a setup error."""
    started = time.monotonic()
    try:
        found = evaluate(rule, source)
    except SourceError as error:
        return Check(
            GATE, f"{GATE}/{rule.name}", Outcome.COULD_NOT_RUN, Verdict.SETUP_ERROR, str(error),
            seconds=time.monotonic() - started,
        )  # fmt: skip
    dead = list(found.dead)
    violations, listed, unread = found.violations, 0, ""
    if rule.baseline:
        try:
            old = baseline.against(violations, lines_of(rule, source.tree), source.tree)
            violations, listed = old.new, old.listed
            dead += _shrinks(rule, source.tree, old.gone)
        except baseline.BaselineError as error:
            unread = str(error)
            dead.append(unread)
    proof: list[Hit] = []
    try:
        proof = caught(rule, source, found)
        if not proof:
            dead.append(f"the violation planted in {rule.planted.file} is not caught")
    except SourceError as error:
        dead.append(str(error))
    if unread:
        headline = f"Rule {rule.name} cannot be judged: {unread}."
    elif violations:
        more = f" and {len(violations) - 1} more" if len(violations) > 1 else ""
        headline = f"{violations[0]}{more}. {rule.why}"
    elif dead:
        headline = f"Rule {rule.name} is dead: {dead[0]}."
    else:
        headline = _held(rule, found, listed)
    broken = bool(violations or dead)
    return Check(
        gate=GATE,
        name=f"{GATE}/{rule.name}",
        outcome=Outcome.FAIL if broken else Outcome.PASS,
        verdict=Verdict.BROKEN if broken else Verdict.HELD,
        headline=headline,
        details={
            "why": rule.why,
            "kind": rule.__struct_config__.tag,
            "violations": [_evidence(hit, source.tree) for hit in violations[:SHOWN]],
            "places": [_evidence(hit, source.tree) for hit in found.places[:SHOWN]],
            "dead": dead,
            "unresolved": [_evidence(hit, source.tree) for hit in found.unresolved[:SHOWN]],
            "dynamic": [_evidence(hit, source.tree) for hit in found.dynamic[:SHOWN]],
            "planted": [asdict(hit) for hit in proof[:SHOWN]],
            **{
                name: count
                for name, count in (
                    ("frozen", listed),
                    ("unresolved_calls", len(found.unresolved)),
                    ("dynamic_calls", len(found.dynamic)),
                )
                if count
            },
        },
        seconds=time.monotonic() - started,
    )


def lines_of(rule: AnyRule, tree: Tree) -> list[baseline.Frozen]:
    """The frozen violations of a rule. Raises BaselineError."""
    text = tree.files.get(rule.baseline)
    if text is None:
        raise baseline.BaselineError(
            f"baseline {rule.baseline} is not there: `{_freeze(rule, tree)}` makes it, "
            "or take `baseline` out of the rule"
        )
    return baseline.read(text, at=rule.baseline)


def _freeze(rule: AnyRule, tree: Tree) -> str:
    return Invocation(root=tree.at).command("structure", "freeze", rule.name)


def _shrinks(rule: AnyRule, tree: Tree, gone: list[baseline.Frozen]) -> list[str]:
    if not gone:
        return []
    return [
        f"{_count(len(gone), 'frozen violation')} gone, first {gone[0].path}: {gone[0].what}; "
        f"shrink it: `{_freeze(rule, tree)}`"
    ]


def _held(rule: AnyRule, found: Findings, listed: int) -> str:
    places = [hit for hit in found.places if hit.line]
    where = f"{places[0].path}:{places[0].line}" if len(places) == 1 else f"{len(places)} places"
    summary = f"{where} and nowhere else"
    if not places:
        summary = found.places[0].what if found.places else "nothing but what is frozen"
    if isinstance(rule, Imports) and rule.layers:
        summary = f"{len(places)} imports, all downwards, no cycle"
    if listed:
        summary += f"; {_count(listed, 'frozen violation')} left"
    if found.dynamic:
        summary += f"; {_count(len(found.dynamic), 'dynamic call')} there cannot be followed"
    return f"{summary}; the planted violation is caught."


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _evidence(hit: Hit, tree: Tree) -> dict[str, str | int]:
    text = tree.line(hit.path, hit.line) if hit.path in tree.files else ""
    return {"path": hit.path, "line": hit.line, "what": hit.what, "text": text}


def check(policy: StructurePolicy, root: Path, progress: Callable[[str], None]) -> Iterator[Check]:
    """Every rule of the policy over the tree under `root`; no rules at all is a failure that says so."""
    if not policy.rules:
        yield Check(GATE, f"{GATE}/rules", Outcome.COULD_NOT_RUN, Verdict.NOT_RUN,
                    "The policy holds no [[structure.rules]]: nothing was checked.")  # fmt: skip
        return
    try:
        source = Source(Tree.read(root, policy))
    except SourceError as error:
        yield Check(GATE, f"{GATE}/source", Outcome.COULD_NOT_RUN, Verdict.SETUP_ERROR, str(error))
        return
    for link in source.tree.unseen:
        what = (
            f"{link} is a link to a folder of which the project lists no file, so no rule sees what is in it: "
            "keep the files in the project, or name the link in [structure] exclude"
        )
        yield Check(GATE, f"{GATE}/{link}", Outcome.COULD_NOT_RUN, Verdict.NOT_RUN, what)
    progress(f"{len(policy.rules)} rules over {len(source.tree.files)} files")
    for rule in policy.rules:
        yield judge(rule, source)


def run(policy: Policy, root: Path, progress: Callable[[str], None]) -> Iterator[Check]:
    """The gate as `paritygate verify` calls it."""
    return check(policy.structure, root, progress)
