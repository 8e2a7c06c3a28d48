"""Prefix reuse: states that prefill computed, least recently used first to go, bounded in bytes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tokenline.cache import LayerCache
from tokenline.decode.prefill_plan import PrefillPlan, reusable


@dataclass(frozen=True)
class _Entry:
    tokens: np.ndarray
    split_points: tuple[int, ...]
    caches: list[LayerCache]
    nbytes: int


class PromptCache:
    """Looked up by the longest prefix that the plan may adopt; a hit copies and consumes nothing.

    The limit covers the stored states and the rows that are alive: what live rows need is taken from the oldest states.
    `namespace` separates what must not be shared: checkpoint and template.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._entries: OrderedDict[tuple[str, bytes, tuple[int, ...]], _Entry] = OrderedDict()
        self.hits = 0
        self.misses = 0

    @property
    def nbytes(self) -> int:
        return sum(entry.nbytes for entry in self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)

    def adopt(self, namespace: str, prompt: Sequence[int], plan: PrefillPlan) -> tuple[int, list[LayerCache]]:
        """How many of the prompt's tokens a stored state covers, and copies of the state; (0, []) for a miss."""
        tokens = np.asarray(prompt, dtype=np.int64)
        best, found = 0, None
        for key, entry in self._entries.items():
            if key[0] == namespace:
                count = reusable(plan, entry.split_points, _shared_prefix(tokens, entry.tokens))
                if count > best:
                    best, found = count, key
        if found is None:
            self.misses += 1
            return 0, []
        self._entries.move_to_end(found)
        entry = self._entries[found]
        caches = [cache.copy() for cache in entry.caches]
        if not all(cache.trim(len(entry.tokens) - best) for cache in caches):
            # Only state that is exact may be adopted; a layer that cannot give it makes this a miss.
            self.misses += 1
            return 0, []
        self.hits += 1
        return best, caches

    def store(
        self,
        namespace: str,
        tokens: Sequence[int],
        split_points: tuple[int, ...],
        caches: Sequence[LayerCache],
        live_bytes: int,
    ) -> int:
        """Keep a copy of the state of exactly these tokens; returns the bytes copied, 0 where it was kept already or
        does not fit. The caches must hold the tokens and not one more: state is never ahead of its key."""
        for cache in caches:
            if cache.length != len(tokens):
                raise ValueError(
                    f"a layer holds {cache.length} tokens of state where its key has {len(tokens)}: "
                    f"{abs(cache.length - len(tokens))} too {'many' if cache.length > len(tokens) else 'few'}"
                )
        array = np.asarray(tokens, dtype=np.int64)
        key = (namespace, array.tobytes(), split_points)
        if key in self._entries:
            self._entries.move_to_end(key)
            return 0
        copies = [cache.copy() for cache in caches]
        entry = _Entry(array, split_points, copies, sum(cache.nbytes for cache in copies))
        self._entries[key] = entry
        self.make_room(live_bytes)
        return entry.nbytes if key in self._entries else 0

    def make_room(self, live_bytes: int) -> None:
        """Drop the least recently used until states and live rows fit the limit."""
        held = self.nbytes
        while self._entries and held + live_bytes > self.limit_bytes:
            _, dropped = self._entries.popitem(last=False)
            held -= dropped.nbytes

    def clear(self) -> None:
        self._entries.clear()


def _shared_prefix(a: np.ndarray, b: np.ndarray) -> int:
    length = min(len(a), len(b))
    different = np.nonzero(a[:length] != b[:length])[0]
    return int(different[0]) if len(different) else length
