"""What an attention cache holds, in a few bits: a scale and a bias for each group of codes."""

from __future__ import annotations

from collections.abc import Sequence

from tokenline.errors import BackendError
from tokenline.ops.base import Array, Ops

_GROUPS = (64, 32)  # the larger that divides an entry


class QuantizedStorage:
    """Entries [B, H, T, size], one array for each of `sizes`, as codes, scales and biases with the same first axes.

    Tokens are quantized one by one as they come, before any query sees them: what a token leaves does not depend on
    what came with it, so a cold run and a hit hold the same codes. BackendError for a size that has no whole groups.
    """

    def __init__(self, ops: Ops, sizes: Sequence[int], bits: int) -> None:
        self._ops, self._bits = ops, bits
        self._groups = [next((group for group in _GROUPS if size % group == 0), 0) for size in sizes]
        if 0 in self._groups:
            size = sizes[self._groups.index(0)]
            raise BackendError(
                f"keys or values of {size} entries cannot be kept in groups of {_GROUPS[-1]}",
                "leave kv_bits out for this model",
            )

    def stored(self, arrays: Sequence[Array]) -> list[Array]:
        """Three arrays for each."""
        pairs = zip(arrays, self._groups, strict=True)
        return [part for array, group in pairs for part in self._ops.quantize(array, self._bits, group)]

    def seen(self, stored: Sequence[Array]) -> list[Array]:
        threes = zip(stored[0::3], stored[1::3], stored[2::3], self._groups, strict=True)
        return [
            self._ops.dequantize(codes, scales, biases, self._bits, group)
            for codes, scales, biases, group in threes
        ]
