"""Families with a recurrent state, alone or beside attention."""

from __future__ import annotations

from architectures.tiny import Tiny

RECURRENT_FAMILIES: dict[str, Tiny] = {}
