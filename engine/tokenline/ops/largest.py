"""The largest of a vocabulary without sorting it, on a CPU, for the backends alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenline.ops.base import Array, Ops

# Entries in a block: few enough that the blocks chosen are a fraction of a vocabulary.
BLOCK = 32


def first_by_blocks(
    ops: Ops,
    x: Array,
    count: int,
    first_of: Callable[[Array, int], Array],
    ascending: Callable[[Array], Array],
) -> Array:
    """Indices of the `count` largest of each row, as `Ops.largest` orders them; `first_of` finds them in a short row.

    Sorting a whole vocabulary takes ten milliseconds and more. The `count` blocks with the largest maxima, of equal
    ones those with lower indices, hold the `count` largest: each has an entry that comes before any other's.
    """
    rows, size = x.shape
    if size < 2 * count * BLOCK:
        return first_of(x, count)
    whole = size // BLOCK * BLOCK
    maxima = ops.row_max(x[:, :whole].reshape(rows, -1, BLOCK))[..., 0]
    blocks = ascending(first_of(maxima, count))
    inside = (blocks[:, :, None] * BLOCK + ops.arange(0, BLOCK)).reshape(rows, -1)
    rest = blocks[:, :1] * 0 + ops.arange(whole, size)  # of every row
    # Ascending indices, so that of equal values the lower is first here too.
    candidates = ops.concat([inside, rest], 1)
    return ops.gather(candidates, first_of(ops.gather(x, candidates), count))
