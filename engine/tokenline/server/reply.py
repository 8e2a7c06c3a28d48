"""What an endpoint's answer is to the transport: whole, or event by event."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from tokenline.errors import RequestError

if TYPE_CHECKING:
    from tokenline.row import Event

Json = dict[str, Any]
COMMENT = b": keep-alive\n\n"


class Reply(Protocol):
    """One answer. Every event of its rows goes through `chunks`, also where the answer is sent whole."""

    # Whether an event of the stream is named by its `type`.
    named: ClassVar[bool]
    # The sign of life, and what closes the stream.
    ping: ClassVar[bytes]
    last: ClassVar[bytes]

    def whole(self, results: Sequence[Json]) -> Json: ...

    def opening(self, prompt_lengths: Sequence[int]) -> Iterator[Json]:
        """What is sent before there is any token."""
        ...

    def chunks(self, index: int, event: Event) -> Iterator[Json]:
        """What one event of a row adds."""
        ...

    def ending(self, results: Sequence[Json]) -> Iterator[Json]:
        """What is sent when every row has ended."""
        ...

    def failure(self, error: RequestError) -> Json:
        """The event that ends a stream instead."""
        ...
