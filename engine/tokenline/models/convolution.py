"""Short convolutions over the text: every channel by itself, over a token and the few before it."""

from __future__ import annotations

import numpy as np

from tokenline.cache import RecurrentCache
from tokenline.checkpoint.checkpoint import Tensors
from tokenline.models.forward import Forward
from tokenline.models.layers import Linear
from tokenline.ops.arrays import dense
from tokenline.ops.base import Array, Ops


class CausalConvolution:
    """Depthwise, `taps` long: y[t] = bias + sum over k of weight[k] * x[t - taps + 1 + k].

    What lies before the first token is zero; what lies before a piece is carried in, [B, taps - 1, channels].
    """

    def __init__(
        self, ops: Ops, tensors: Tensors, name: str, *, channels: int, taps: int, bias: bool
    ) -> None:
        self._ops, self._channels, self._taps = ops, channels, taps
        weight = dense(tensors.take(f"{name}.weight", (channels, 1, taps)))
        self._weight = ops.array(np.ascontiguousarray(weight[:, 0].T))
        self._bias = ops.array(dense(tensors.take(f"{name}.bias", (channels,)))) if bias else None

    def __call__(self, x: Array, carried: Array | None) -> tuple[Array, Array]:
        """x [B, T, channels] -> the same shape, and what to carry into the next piece."""
        tokens = x.shape[1]
        if carried is None:
            carried = self._ops.zeros((x.shape[0], self._taps - 1, self._channels))
        padded = self._ops.concat([carried, x], 1)
        y = padded[:, :tokens] * self._weight[0]
        for tap in range(1, self._taps):
            y = y + padded[:, tap : tap + tokens] * self._weight[tap]
        return y if self._bias is None else y + self._bias, padded[:, tokens:]


class ShortConvolution:
    """LFM2's mixer: the input is gated, convolved and gated again (b * x, convolution, c * …), between projections."""

    def __init__(
        self, ops: Ops, tensors: Tensors, name: str, *, width: int, taps: int, bias: bool = False
    ) -> None:
        self._width = width
        self._in = Linear(ops, tensors, [(f"{name}.in_proj", 3 * width)], width, bias=bias)
        self._convolution = CausalConvolution(
            ops, tensors, f"{name}.conv", channels=width, taps=taps, bias=bias
        )
        self._out = Linear(ops, tensors, [(f"{name}.out_proj", width)], width, bias=bias)

    @property
    def nbytes(self) -> int:
        return self._in.nbytes + self._out.nbytes

    def __call__(self, x: Array, forward: Forward, cache: RecurrentCache) -> Array:
        parts = self._in(x)
        width = self._width
        before, after, x = (parts[..., i * width : (i + 1) * width] for i in range(3))
        [carried] = cache.arrays or [None]
        y, carried = self._convolution(before * x, carried)
        cache.update(forward.tokens, carried)
        return self._out(after * y)
