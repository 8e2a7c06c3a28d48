"""The usual frame around a family's layers: embedding before them, a norm and a head after."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tokenline.checkpoint.checkpoint import Tensors
from tokenline.models.config import Sizes
from tokenline.models.decoder import Decoder, Layer, Norm
from tokenline.models.head import Head, is_tied
from tokenline.models.layers import Embedding, RmsNorm
from tokenline.ops.base import Ops


def framed(
    ops: Ops,
    config: Mapping[str, Any],
    tensors: Tensors,
    sizes: Sizes,
    layer: Callable[[int], Layer],
    context: int,
    *,
    root: str = "model",
    norm: Norm | None = None,
    tied: bool | None = None,
    embedding_scale: float = 1.0,
    logit_scale: float = 1.0,
    logit_cap: float | None = None,
) -> Decoder:
    """`layer` makes each of the layers. `root` begins the names in the checkpoint; `norm` is the last one where it is
    not an rms norm of the usual name, `tied` whether the head is the embedding where the usual key does not say."""
    embedding = Embedding(
        ops, tensors, f"{root}.embed_tokens", sizes.vocabulary, sizes.width, scale=embedding_scale
    )
    tied = is_tied(config, tensors) if tied is None else tied
    return Decoder(
        embedding=embedding,
        layers=[layer(index) for index in range(sizes.layers)],
        norm=norm or RmsNorm(ops, tensors, f"{root}.norm", sizes.width, sizes.eps),
        head=Head(ops, tensors, embedding, tied=tied, scale=logit_scale, cap=logit_cap),
        context_length=context,
    )
