"""A cache claim about what was pushed out, over an engine that remembers its last prompts whole."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from table_arm import Table, checks, said
from two_cases import ONE_ARM

from paritygate.case import Case
from paritygate.gates import cache
from paritygate.policy.load import policy_of
from paritygate.stream import Stream, Usage
from paritygate.verdict import Verdict

POLICY = f"""\
{ONE_ARM}[claims.kept]
kind = "cache"
arms = ["one"]
repeat = []
evicted = ["long"]
crowd = 3
"""


class Remembering(Table):
    """Holds `room` prompts, the oldest given up first; `spoilt` says something else once its prompt was given up."""

    def __init__(self, room: int, *, spoilt: bool = False) -> None:
        super().__init__()
        self._room, self._spoilt = room, spoilt
        self._held: list[tuple[int, ...]] = []
        self._seen: set[tuple[int, ...]] = set()

    def reset(self) -> None:
        self._held, self._seen = [], set()

    def repeat(self, case: Case, times: int) -> tuple[Stream, ...]:
        self.reset()
        return tuple(self.generate(case) for _ in range(times))

    def generate(self, case: Case) -> Stream:
        prompt = case.prompt_token_ids or ()
        found = prompt in self._held
        stream = said(case)
        if self._spoilt and prompt in self._seen and not found:
            stream = msgspec.structs.replace(stream, token_ids=(9, 9, 9, 9))
        self._held = [*(each for each in self._held if each != prompt), prompt][-self._room :]
        self._seen.add(prompt)
        count = len(stream.token_ids or ())
        cached = len(prompt) - 1 if found else 0
        usage = Usage(
            prompt_tokens=len(prompt),
            completion_tokens=count,
            total_tokens=len(prompt) + count,
            cached_tokens=cached,
        )
        return msgspec.structs.replace(stream, usage=usage)


@pytest.mark.parametrize(
    ("arm", "again", "says"),
    [
        (Remembering(2), Verdict.IDENTICAL, "0 of 7 tokens were left"),
        (Remembering(10), Verdict.NOT_RUN, "7 of 7 tokens were still there: nothing was pushed out"),
        (Remembering(2, spoilt=True), Verdict.DIVERGED, "the hit does not say what the cold run says"),
    ],
)
def test_what_was_pushed_out_is_asked_again(arm: Remembering, again: Verdict, says: str) -> None:
    found = checks(cache, policy_of(POLICY.encode(), Path()), arm)
    names = ["cache/kept/one/long-evicted/again", "cache/kept/one/long-evicted/hit"]
    assert list(found) == names
    assert found[names[0]].verdict is again
    assert says in found[names[0]].headline
    assert found[names[1]].verdict is Verdict.IDENTICAL
