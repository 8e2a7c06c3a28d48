"""How the server treats its clients."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """Times are in seconds, None for no bound. Nothing here changes what an answer says but `generation_config`, which
    puts the checkpoint's own sampling below what a request asks for.
    """

    # Other names that clients may call the model by.
    aliases: frozenset[str] = frozenset()
    # Keys that open the server; none opens it to everybody.
    api_keys: tuple[str, ...] = ()
    # Origins whose pages may call it from a browser.
    cors_origins: tuple[str, ...] = ()
    max_body_bytes: int = 32 << 20
    request_timeout_s: float | None = None
    sse_ping_s: float | None = 15.0
    drain_timeout_s: float | None = None
    generation_config: bool = False
