"""What a policy says of a server: where it is or how it is started, and how it is spoken to."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import msgspec

from paritygate.arms.dialects import DialectName
from paritygate.arms.own_settings import own_settings
from paritygate.arms.places import refuse_misspelt
from paritygate.quantities import Bytes, Seconds, Threads


class HttpOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The keys of an arm of kind `http`.

    `url` names a server that runs already; without it one is started: `command` (its words may hold {model} and
    {port}), or `tokenline serve` with `backend`, `dtype` and `threads`. `dialect` says which kind of server it is
    (tokenline where none is named and the arm starts it, openai otherwise), and `details` whether tokenline's
    extension is asked for. `extra` is added to every body; `api_key_env` names the variable that holds the key.
    """

    url: str = ""
    command: tuple[str, ...] = ()
    ready: str = "/health"
    served_model: str = ""
    streamed: bool = False
    dialect: DialectName | None = None
    details: bool = True
    extra: dict[str, Any] = {}
    api_key_env: str = ""
    backend: str = "auto"
    dtype: str = "float32"
    threads: Threads = 1
    cache_bytes: Bytes | None = None
    timeout_s: Seconds = 120.0

    def __post_init__(self) -> None:
        if self.url and self.command:
            raise ValueError("url and command exclude each other: a server runs already, or is started")
        refuse_misspelt(self.command, ("model", "port"))
        if self.url:
            _refuse_no_address(self.url)

    @property
    def speaks(self) -> str:
        """The dialect, resolved."""
        return self.dialect or ("openai" if self.url or self.command else "tokenline")

    @property
    def tells_details(self) -> bool:
        return self.details and self.speaks == "tokenline"

    @property
    def settings(self) -> dict[str, Any]:
        """What the manifests of a server of ours will say of how it computes; of another nothing is known."""
        if self.url or self.command or not self.tells_details:
            return {}
        return own_settings(self.backend, self.dtype, self.threads)


def _refuse_no_address(url: str) -> None:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ValueError(f"url {url!r} is no address: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise ValueError(f"url {url!r} is no address: write it like http://127.0.0.1:8000")
