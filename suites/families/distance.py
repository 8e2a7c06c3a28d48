"""How far two engines' logits may be apart."""

from __future__ import annotations

import numpy as np

# max |difference of logits| over the range of the logits, float32.
ENVELOPE = 1e-4


def apart(ours: np.ndarray, theirs: np.ndarray) -> float:
    assert ours.shape == theirs.shape
    return float(np.abs(ours - theirs).max() / np.ptp(theirs))
