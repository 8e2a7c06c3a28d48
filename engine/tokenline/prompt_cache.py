"""Prefix reuse: states that prefill computed, kept by the piece, the least recently used given up first."""

from __future__ import annotations

import hashlib
import itertools
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from tokenline.cache import LayerCache
from tokenline.decode.prefill_plan import Piece, PrefillPlan


@dataclass(frozen=True)
class Trail:
    """Where a prompt's states are found: the pieces of its cold plan that may be stored, each with its key, a digest of
    its tokens and of the key before it. Made once for a row: a long prompt is read once."""

    namespace: str = ""
    pieces: tuple[Piece, ...] = ()
    keys: tuple[bytes, ...] = ()

    @classmethod
    def of(cls, namespace: str, prompt: Sequence[int], plan: PrefillPlan) -> Self:
        tokens = np.asarray(prompt, dtype=np.int64)
        pieces = tuple(plan.storable_pieces())
        keys: list[bytes] = []
        before = namespace.encode()
        for piece in pieces:
            before = hashlib.blake2b(
                before + tokens[piece.start : piece.stop].tobytes(), digest_size=32
            ).digest()
            keys.append(before)
        return cls(namespace, pieces, tuple(keys))


@dataclass(frozen=True)
class Entry:
    """What one piece left in every layer: the state of its tokens, or the whole state up to its end where a kind of
    layer has no other."""

    namespace: str
    segments: list[LayerCache]

    @property
    def nbytes(self) -> int:
        return sum(segment.nbytes for segment in self.segments)


class PromptCache:
    """A tree of pieces: a prompt's way through it are the pieces of its cold plan, so that what is found was computed
    by exactly the forwards that a cold run would run. Prompts that begin alike share what they share. A hit copies
    and consumes nothing.

    The limit covers the stored states and the rows that are alive: what live rows need is taken from the oldest states.
    A piece is never used without those before it, and is given up before them. The namespace of a trail separates what
    must not be shared: checkpoint and template.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        # The least recently used first. A piece is always younger than those that follow it.
        self._entries: OrderedDict[bytes, Entry] = OrderedDict()
        self.nbytes = 0
        self.changed = False  # since `take_over`
        self.hits = 0
        self.misses = 0

    def __len__(self) -> int:
        """Pieces that are kept."""
        return len(self._entries)

    def adopt(self, trail: Trail) -> tuple[int, list[LayerCache]]:
        """How many of the prompt's tokens the stored pieces cover, and a copy of their state; (0, []) for a miss."""
        found = list(itertools.takewhile(self._entries.__contains__, trail.keys))
        if not found:
            self.misses += 1
            return 0, []
        count = trail.pieces[len(found) - 1].stop
        self._touch(found)
        *earlier, last = [self._entries[key].segments for key in found]
        self.hits += 1
        return count, [
            segment.after([segments[layer] for segments in earlier]) for layer, segment in enumerate(last)
        ]

    def store(self, trail: Trail, piece: Piece, caches: Sequence[LayerCache], live_bytes: int) -> int:
        """Keep what the piece, the last that ran, has left; returns the bytes copied, 0 where it was kept already, does
        not fit, or follows one that is no longer there. The caches must hold the tokens up to the piece's end and not
        one more: state is never ahead of its key."""
        for cache in caches:
            if cache.length != piece.stop:
                raise ValueError(
                    f"a layer holds {cache.length} tokens of state where its key has {piece.stop}: "
                    f"{abs(cache.length - piece.stop)} too {'many' if cache.length > piece.stop else 'few'}"
                )
        *before, key = trail.keys[: trail.pieces.index(piece) + 1]
        if key in self._entries or not all(each in self._entries for each in before[-1:]):
            self._touch([each for each in (*before, key) if each in self._entries])
            return 0
        entry = Entry(trail.namespace, [cache.segment(piece.start) for cache in caches])
        self._entries[key] = entry
        self.nbytes += entry.nbytes
        self.changed = True
        self._touch([*before, key])
        self.make_room(live_bytes)
        return entry.nbytes if key in self._entries else 0

    def entries(self) -> Sequence[tuple[bytes, Entry]]:
        """By key, the least recently used first."""
        return tuple(self._entries.items())

    def take_over(self, entries: Sequence[tuple[bytes, Entry]]) -> None:
        """Keep these, in that order, and nothing else."""
        self._entries = OrderedDict(entries)
        self.nbytes = sum(entry.nbytes for entry in self._entries.values())
        self.make_room(0)
        self.changed = False

    def _touch(self, keys: Sequence[bytes]) -> None:
        for key in reversed(keys):
            self._entries.move_to_end(key)

    def make_room(self, live_bytes: int) -> None:
        """Drop the least recently used until states and live rows fit the limit."""
        while self._entries and self.nbytes + live_bytes > self.limit_bytes:
            _, dropped = self._entries.popitem(last=False)
            self.nbytes -= dropped.nbytes

    def stats(self) -> dict[str, int]:
        return {
            "entries": len(self),
            "bytes": self.nbytes,
            "limit_bytes": self.limit_bytes,
            "hits": self.hits,
            "misses": self.misses,
        }

    def clear(self) -> None:
        self.changed = self.changed or bool(self._entries)
        self._entries.clear()
        self.nbytes = 0
