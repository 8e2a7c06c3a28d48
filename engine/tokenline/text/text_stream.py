"""One row's text: its tokens spelled out, up to a stop string."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from tokenline.text.detokenizer import Detokenizer
from tokenline.text.stop import StopMatcher
from tokenline.text.tokenizer import Tokenizer


class TextStream:
    """The only way from token ids to text that is sent: every path, streamed or not, goes through it."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        stops: Iterable[str] = (),
        *,
        exact: bool = False,
        marks: Collection[int] = (),
    ) -> None:
        self._detokenizer = Detokenizer(tokenizer, exact=exact, marks=marks)
        self._matcher = StopMatcher(stops)

    @property
    def stop_found(self) -> str | None:
        """The stop string that ended the text, None where none did."""
        return self._matcher.found

    def push(self, token_id: int) -> tuple[str, bool]:
        """(text that may be sent now, whether a stop string was found)."""
        return self._matcher.push(self._detokenizer.push(token_id))

    def finish(self) -> str:
        """What was held back, once; "" after a stop string."""
        text, stopped = self._matcher.push(self._detokenizer.flush())
        return text if stopped else text + self._matcher.flush()
