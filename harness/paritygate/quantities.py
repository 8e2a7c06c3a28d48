"""The numbers that a policy may hold, each kind with the range in which it can be meant; all are finite.

An upper bound is far above what anybody measures with: it refuses a slip of the keyboard, not a large machine.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

LONGEST_SECONDS = 7 * 24 * 3600
MOST_TOKENS = 100_000_000

Natural = Annotated[int, Meta(ge=0, le=1_000_000_000)]
Count = Annotated[int, Meta(ge=1, le=1_000_000_000)]
Tokens = Annotated[int, Meta(ge=1, le=MOST_TOKENS)]
TokenId = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Threads = Annotated[int, Meta(ge=1, le=4096)]
Bytes = Annotated[int, Meta(ge=0, le=2**50)]
Integer64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]  # a seed

Seconds = Annotated[float, Meta(gt=0, le=LONGEST_SECONDS)]
Finite = Annotated[float, Meta(ge=-1e9, le=1e9)]
NotNegative = Annotated[float, Meta(ge=0, le=1e9)]
Positive = Annotated[float, Meta(gt=0, le=1e9)]
Share = Annotated[float, Meta(gt=0, le=1)]
Margin = Annotated[float, Meta(gt=0, lt=1)]
Alpha = Annotated[float, Meta(gt=0, lt=0.5)]
