"""What the layers of one forward share: angles and masks, each computed once however many layers ask."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tokenline.cache import AttentionCache
from tokenline.models.rope import RopeTable
from tokenline.models.temperature import Temperature
from tokenline.ops.base import Array


class Forward:
    """One forward over the next `tokens` of every row.

    Caches of one `kind` hold the same tokens of the same rows before a forward, so that the first to be asked answers
    for all. A layer asks before it updates its cache.
    """

    def __init__(self, tokens: int) -> None:
        self.tokens = tokens
        self._known: dict[object, Any] = {}

    def mask(self, cache: AttentionCache) -> Array | str | None:
        """As `Ops.attention` takes it."""
        return self._once(cache.kind, lambda: cache.mask(self.tokens))

    def angles(self, rope: RopeTable, cache: AttentionCache) -> tuple[Array, Array]:
        """cos and sin of the tokens' positions."""
        return self._once(rope, lambda: rope.at(cache.positions(self.tokens), self.tokens))

    def temperatures(self, tuning: Temperature, cache: AttentionCache) -> Array:
        """What the queries at the tokens' positions are multiplied by."""
        return self._once(tuning, lambda: tuning.at(cache.positions(self.tokens), self.tokens))

    def _once(self, key: object, compute: Callable[[], Any]) -> Any:
        known = self._known
        if key not in known:
            known[key] = compute()
        return known[key]
