"""What tokenline's manifests say of how it computes, as far as an arm's options decide it."""

from __future__ import annotations

from typing import Any


def own_settings(backend: str, dtype: str, threads: int) -> dict[str, Any]:
    """By the manifest's names; which backend "auto" becomes is known when the engine runs."""
    return ({} if backend == "auto" else {"backend": backend}) | {"dtype": dtype, "threads": threads}
