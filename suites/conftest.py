"""What holds for every test."""

from __future__ import annotations

from hypothesis import settings

# How long an example takes says how busy the machine is.
settings.register_profile("whenever", deadline=None)
settings.load_profile("whenever")
