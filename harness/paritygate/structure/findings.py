"""What a rule found: where it holds, where it is broken, and what it named that no longer exists."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, order=True)
class Hit:
    """One place in the source and what is there."""

    path: str
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line} {self.what}"


@dataclass
class Findings:
    """`places` is what the rule is about where it is allowed; without one the rule guards nothing.

    `dead` says what the rule names and the tree lacks; `unresolved` might be
    violations, but nothing tells. `dynamic` are the calls, where the rule looked, that no name leads to.
    """

    places: list[Hit] = field(default_factory=list)
    violations: list[Hit] = field(default_factory=list)
    dead: list[str] = field(default_factory=list)
    unresolved: list[Hit] = field(default_factory=list)
    dynamic: list[Hit] = field(default_factory=list)

    def ordered(self) -> Findings:
        """The same, each list sorted and without repeats."""
        return Findings(
            sorted(set(self.places)),
            sorted(set(self.violations)),
            self.dead,
            sorted(set(self.unresolved)),
            sorted(set(self.dynamic)),
        )
