"""The adapter under test: its class, its options, and one open arm that the checks share."""

from __future__ import annotations

import contextlib
from typing import Any

import msgspec

from paritygate.arms.base import Arm, ArmError
from paritygate.arms.hosted import driven
from paritygate.arms.registry import arm_class
from paritygate.case import Case
from paritygate.stream import Stream

PROMPT = "The quick brown fox jumps over the lazy dog. The quick brown"
PLAIN = Case(name="plain", max_tokens=12, prompt=PROMPT, logprobs=2)
NAME = "conformance"


class Broken(Exception):
    """What an adapter does that the protocol does not allow, in one sentence."""


class Subject:
    """Made of a kind, or of a class that no entry point names yet; that one is not hosted, whatever it says."""

    def __init__(self, adapter: str | type[Any], options: dict[str, Any], model: str) -> None:
        self.kind = adapter if isinstance(adapter, str) else ""
        self.cls: Any = arm_class(adapter) if isinstance(adapter, str) else adapter
        self.options = options
        self.model = model
        self._arm: Arm | None = None
        self._answer: Stream | None = None

    def make(self, **changed: Any) -> Arm:
        """Another arm, not open, driven as the gates would drive it."""
        options = self.options | changed
        if self.kind:
            return driven(NAME, self.kind, options, self.model)
        return self.cls(NAME, msgspec.convert(options, self.cls.Options), self.model)

    def arm(self) -> Arm:
        """The shared arm, open. Raises ArmError."""
        if self._arm is None:
            made = self.make()
            made.open()
            self._arm = made
        return self._arm

    def answer(self) -> Stream:
        """What it says to the plain case, asked once."""
        if self._answer is None:
            self._answer = self.arm().generate(PLAIN)
        return self._answer

    def drop(self) -> None:
        """Close the shared arm; the next check opens another."""
        if self._arm is not None:
            with contextlib.suppress(ArmError):
                self._arm.close()
            self._arm = None
