"""Stop strings, found in a text that arrives in pieces (Aho and Corasick, 1975)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable


class StopMatcher:
    """Gives out text up to the first stop string, and no part of any stop string that was found.

    The match that ends first wins; of two that end together, the longer. That is a rule about the text, not
    about its pieces: the same text cut otherwise gives the same result. Each character costs constant time
    however many stop strings there are; what is held back is never more than the start of one of them.
    """

    def __init__(self, stops: Iterable[str]) -> None:
        self._next: list[dict[str, int]] = [{}]
        self._depth = [0]
        # Length of the longest stop string that ends in this state, 0 for none.
        self._match = [0]
        for stop in stops:
            self._add(stop)
        # For each state the longest other state that is a suffix of it.
        self._fallback = [0] * len(self._next)
        self._link()
        self._state = 0
        self._held: deque[str] = deque()
        self.found: str | None = None

    @property
    def stopped(self) -> bool:
        return self.found is not None

    def push(self, text: str) -> tuple[str, bool]:
        """(text that is certain now, whether a stop string was found); nothing comes out after one was."""
        if self.stopped:
            return "", True
        for character in text:
            self._held.append(character)
            self._state = self._after(self._state, character)
            if length := self._match[self._state]:
                certain = self._release(len(self._held) - length)
                self.found = self._release(length)
                return certain, True
        return self._release(len(self._held) - self._depth[self._state]), False

    def flush(self) -> str:
        """The text held back as a possible start of a stop string that never came, once."""
        self._state = 0
        return self._release(len(self._held))

    def _release(self, count: int) -> str:
        return "".join([self._held.popleft() for _ in range(count)])

    def _add(self, stop: str) -> None:
        state = 0
        for character in stop:
            following = self._next[state].get(character)
            if following is None:
                following = len(self._next)
                self._next[state][character] = following
                self._next.append({})
                self._depth.append(self._depth[state] + 1)
                self._match.append(0)
            state = following
        self._match[state] = len(stop)

    def _link(self) -> None:
        fallback = self._fallback
        queue = deque(self._next[0].values())
        while queue:
            state = queue.popleft()
            for character, following in self._next[state].items():
                fallback[following] = self._after(fallback[state], character)
                queue.append(following)
            if not self._match[state]:
                self._match[state] = self._match[fallback[state]]

    def _after(self, state: int, character: str) -> int:
        while state and character not in self._next[state]:
            state = self._fallback[state]
        return self._next[state].get(character, 0)
