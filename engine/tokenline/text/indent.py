"""The bound on indentation: a block of code ends where a line is indented less."""

from __future__ import annotations


class IndentBound:
    """Gives out text up to the first line, not counting the line that it begins in, whose first character other than a
    space or a tab has fewer than `least` of these before it (llama.cpp's `n_indent`). 0 bounds nothing.
    """

    def __init__(self, least: int) -> None:
        self._least = least
        self._indent: int | None = None  # of the line that is being measured
        self.stopped = False

    def push(self, text: str) -> tuple[str, bool]:
        """(text before the bound, whether the bound was met); nothing comes out after it was."""
        if self.stopped:
            return "", True
        for index, character in enumerate(text if self._least else ""):
            if character == "\n":
                self._indent = 0
            elif self._indent is not None and character in " \t":
                self._indent += 1
            elif self._indent is not None and self._indent < self._least:
                self.stopped = True
                return text[:index], True
            else:
                self._indent = None
        return text, False
