"""What a draw yields, and how draws of two batches become one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from tokenline.ops.base import Array, Ops

_FIELDS = ("tokens", "valid", "logprobs", "alternatives", "surprises")


@dataclass(frozen=True)
class Drawn:
    """On the device until read: `tokens` int [rows]; `valid` bool [rows], False where a row's logits are not numbers or
    no token is left; `logprobs` float32 [rows, 1 + n], the drawn token's first, and `alternatives` int [rows, n], the n
    most likely, or None if no row reports any; `surprises` float32 [rows], the bits that mirostat steers by, or None if
    no row asks for it."""

    tokens: Array
    valid: Array
    logprobs: Array | None = None
    alternatives: Array | None = None
    surprises: Array | None = None

    def arrays(self) -> list[Array]:
        return [array for name in _FIELDS if (array := getattr(self, name)) is not None]

    def read(self, ops: Ops) -> Self:
        """The same on the host, in one read."""
        names = [name for name in _FIELDS if getattr(self, name) is not None]
        return replace(self, **dict(zip(names, ops.read(self.arrays()), strict=True)))

    def rows(self, ops: Ops, keep: Sequence[int]) -> Self:
        parts = {name: getattr(self, name) for name in _FIELDS}
        return replace(self, **{n: ops.take(part, keep) for n, part in parts.items() if part is not None})

    def joined(self, ops: Ops, other: Self) -> Self:
        """These rows and the other's; what one side does not report is filled, to the wider side's width."""
        width = max(side._alternatives for side in (self, other))
        surprises = self.surprises is not None or other.surprises is not None
        sides = [side._filled(ops, width, surprises) for side in (self, other)]
        parts = {name: [getattr(side, name) for side in sides] for name in _FIELDS}
        return type(self)(
            **{n: None if pair[0] is None else ops.concat(pair, 0) for n, pair in parts.items()}
        )

    @property
    def _alternatives(self) -> int:
        return 0 if self.alternatives is None else self.alternatives.shape[1]

    def _filled(self, ops: Ops, width: int, surprises: bool) -> Self:
        rows, missing = self.tokens.shape[0], width - self._alternatives
        filled = self
        if missing:
            logprobs = ops.float32(np.zeros((rows, missing + (self.logprobs is None)), np.float32))
            alternatives = ops.array(np.zeros((rows, missing), np.int64))
            if self.logprobs is not None and self.alternatives is not None:
                logprobs = ops.concat([self.logprobs, logprobs], 1)
                alternatives = ops.concat([ops.to_int(self.alternatives), alternatives], 1)
            filled = replace(filled, logprobs=logprobs, alternatives=alternatives)
        if surprises and self.surprises is None:
            filled = replace(filled, surprises=ops.float32(np.zeros(rows, np.float32)))
        return filled
