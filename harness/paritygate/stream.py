"""The record of one generation: what an arm produced for a case, with the settings and counters behind it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

STREAM_SCHEMA = 1


class StreamError(Exception):
    """A line that is not a stream of this schema; the message names the line."""


class TopToken(msgspec.Struct, frozen=True, array_like=True):
    """An alternative at one position: written as [id, text of that token alone, natural logprob].

    The id is None where the arm does not tell it, as OpenAI's interface does not.
    """

    token_id: int | None
    token: str
    logprob: float


class Position(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One token of an answer. `margin` is the gap between the first two alternatives, in logits."""

    token_id: int | None
    token: str
    logprob: float
    top: tuple[TopToken, ...] = ()
    margin: float | None = None

    @property
    def gap(self) -> float | None:
        """The gap between the first two alternatives: the recorded margin, or the difference of their logprobs."""
        if self.margin is not None:
            return self.margin
        return self.top[0].logprob - self.top[1].logprob if len(self.top) > 1 else None


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Token counts as the arm reported them."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    cached_tokens: int | None = None


class Stream(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One answer. What an arm cannot give is None, never empty: an empty tuple says that there was nothing.

    `chunk_ends` are the byte offsets in the UTF-8 text at which the pieces of a streamed answer ended, and
    `arrivals_ns` when each piece arrived, counted from the request; both None where the answer was not streamed.
    """

    schema: int = STREAM_SCHEMA
    case: str
    arm: str
    text: str
    prompt_token_ids: tuple[int, ...] | None = None
    token_ids: tuple[int, ...] | None = None
    positions: tuple[Position, ...] | None = None
    chunk_ends: tuple[int, ...] | None = None
    arrivals_ns: tuple[int, ...] | None = None
    finish_reason: str | None = None
    finish_cause: str | None = None
    usage: Usage | None = None
    manifest: dict[str, Any] = {}
    counters: dict[str, Any] = {}
    timings: dict[str, Any] = {}

    @property
    def text_bytes(self) -> bytes:
        """The answer as bytes: what comparisons compare."""
        return self.text.encode("utf-8")

    def position(self, index: int) -> Position | None:
        """The record of one token, where the arm gave one."""
        return self.positions[index] if self.positions is not None and index < len(self.positions) else None


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(Stream)


def encode(stream: Stream) -> bytes:
    """One JSON line, newline included."""
    # The schema is written although it is a default: a reader must be able to refuse a line it cannot read.
    return _ENCODER.encode({"schema": stream.schema} | msgspec.to_builtins(stream)) + b"\n"


def decode(line: bytes, *, at: str = "stream") -> Stream:
    """The stream of one JSON line. Raises StreamError."""
    try:
        schema = msgspec.json.decode(line, type=dict[str, Any]).get("schema")
        if schema != STREAM_SCHEMA:
            raise StreamError(f"{at}: stream schema {schema!r}, this version reads {STREAM_SCHEMA}")
        return _DECODER.decode(line)
    except msgspec.MsgspecError as error:
        raise StreamError(f"{at}: {error}") from error


def write(path: Path, streams: Iterable[Stream]) -> None:
    """Write streams as JSON Lines."""
    path.write_bytes(b"".join(encode(stream) for stream in streams))


def read(path: Path) -> tuple[Stream, ...]:
    """Read a JSON Lines file of streams. Raises StreamError naming the line."""
    lines = path.read_bytes().splitlines()
    return tuple(decode(line, at=f"{path}:{number}") for number, line in enumerate(lines, 1) if line.strip())
