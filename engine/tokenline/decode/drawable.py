"""Which tokens a request leaves to be drawn, whatever the model says."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from tokenline.request import Sampling


def drawable(sampling: Sampling, eos_token_ids: Collection[int], allowed: np.ndarray) -> np.ndarray:
    """bool [vocabulary]: what its lists leave of what its grammar allows."""
    left = allowed.copy()
    if sampling.allowed_tokens is not None:
        listed = np.zeros_like(left)
        listed[list(sampling.allowed_tokens)] = True
        left &= listed
    left[list(sampling.banned_tokens)] = False
    if sampling.mask_eos:
        left[[token for token in eos_token_ids if token < len(left)]] = False
    return left


def lists_of(sampling: Sampling) -> list[str]:
    """The fields that take tokens away."""
    given = {
        "allowed_tokens": sampling.allowed_tokens is not None,
        "banned_tokens": bool(sampling.banned_tokens),
        "mask_eos": sampling.mask_eos,
    }
    return [name for name, taken in given.items() if taken]
