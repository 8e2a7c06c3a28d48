"""How `tokenline serve` treats its clients."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tokenline.cli.input import reading
from tokenline.errors import RequestError

if TYPE_CHECKING:
    from tokenline.server.settings import ServerSettings

SERVER = "Server"


def _server(*names: str, help: str, **settings: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=SERVER, **settings)


@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """Times are in seconds."""

    api_key: Annotated[
        list[str],
        _server("--api-key", help="A key that opens the server; repeat for more. Open without any."),
    ] = field(default_factory=list)
    api_key_file: Annotated[
        Path | None, _server("--api-key-file", help="Keys, one a line; # begins a comment.")
    ] = None
    cors_origin: Annotated[
        list[str], _server("--cors-origin", help="Pages of this origin may ask; repeat for more, * for all.")
    ] = field(default_factory=list)
    request_timeout: Annotated[
        float | None, _server("--request-timeout", help="An answer that takes longer ends with an error.")
    ] = None
    drain_timeout: Annotated[
        float | None,
        _server("--drain-timeout", help="What a stop gives to answers under way; no bound, unless given."),
    ] = None
    sse_ping: Annotated[
        float,
        _server("--sse-ping", help="A sign of life in a stream after so long without a token; 0 is off."),
    ] = 15.0
    max_body_mib: Annotated[int, _server("--max-body-mib", help="Bound of a request's body.", min=1)] = 32
    generation_config: Annotated[
        bool,
        _server("--generation-config", help="The checkpoint's own sampling, below what a request asks for."),
    ] = False

    def settings(self, aliases: frozenset[str]) -> ServerSettings:
        """RequestError for what no server could keep to."""
        from tokenline.server.settings import ServerSettings  # here: `tokenline --help` needs no server

        for option, seconds in (
            ("--request-timeout", self.request_timeout),
            ("--drain-timeout", self.drain_timeout),
        ):
            if seconds is not None and not 0 < seconds < float("inf"):
                raise RequestError(f"{option} {seconds:g} is no time", "give seconds, more than 0")
        if not 0 <= self.sse_ping < float("inf"):
            raise RequestError(f"--sse-ping {self.sse_ping:g} is no time", "give seconds, 0 for none")
        for origin in self.cors_origin:
            if not re.fullmatch(r"\*|https?://[^/\s]+", origin):
                raise RequestError(
                    f"--cors-origin {origin!r} is no origin", "write https://HOST[:PORT], or *"
                )
        return ServerSettings(
            aliases=aliases,
            api_keys=self._keys(),
            cors_origins=tuple(self.cors_origin),
            max_body_bytes=self.max_body_mib << 20,
            request_timeout_s=self.request_timeout,
            sse_ping_s=self.sse_ping or None,
            drain_timeout_s=self.drain_timeout,
            generation_config=self.generation_config,
        )

    def _keys(self) -> tuple[str, ...]:
        keys = list(self.api_key)
        if self.api_key_file is not None:
            with reading(self.api_key_file, "api_key_file"):
                lines = self.api_key_file.read_text(encoding="utf-8").splitlines()
            found = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
            if not found:
                raise RequestError(f"{self.api_key_file} holds no key", "write one a line")
            keys += found
        if not all(key.strip() for key in keys):
            raise RequestError("--api-key is empty", "leave it out, or give a key")
        return tuple(keys)
