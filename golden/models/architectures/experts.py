"""Families with a mixture of experts or latent attention."""

from __future__ import annotations

from architectures.tiny import Tiny

EXPERT_FAMILIES: dict[str, Tiny] = {}
