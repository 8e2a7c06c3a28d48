"""A command of paritygate as it is printed to be pasted: with the options that the run it came from was given."""

from __future__ import annotations

import shlex

import msgspec


class Invocation(msgspec.Struct, frozen=True):
    """What every later command about the same repository must be told again.

    `root` is the repository as it was named, so that a command works where the run was started; `bar` the revision
    whose policy and goldens it was held to, "" for its own.
    """

    root: str = "."
    bar: str = ""

    def command(self, *words: object) -> str:
        """One line for a shell. Only `replay` and `golden replay` are told the bar: the others know none."""
        given = [*words]
        if self.root != ".":
            given += ["--root", self.root]
        if self.bar and "replay" in words[:2]:
            given += ["--bar", self.bar]
        return joined("paritygate", *given)


def joined(*words: object) -> str:
    """Words as one line for a shell, quoted where they need it."""
    return shlex.join(str(word) for word in words)
