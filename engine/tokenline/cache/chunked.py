"""Keys and values of the last chunk: the cache of chunked attention (Llama 4)."""

from __future__ import annotations

import numpy as np

from tokenline.cache.window import WindowCache


class ChunkedCache(WindowCache):
    """The query at position p sees the positions from floor(p / chunk) * chunk to p.

    `window` is the chunk: a query never sees further back than in a window of that size, so what a window keeps is
    enough, steps that can be undone included. A chunk begins at a row's own positions: in rows that are padded
    otherwise it begins at other tokens.
    """

    def seen_from(self, position: int) -> int:
        return max(0, int(self.seen_by_rows(np.asarray([position])).min()))

    def seen_by_rows(self, queries: np.ndarray) -> np.ndarray:
        padding = np.asarray(self.padding)[:, None]
        return padding + (queries[None] - padding) // self.window * self.window
