"""The kind of struct that every table of a policy is."""

from __future__ import annotations

import msgspec


class Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Every table refuses keys that it does not know."""
