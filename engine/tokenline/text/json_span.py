"""Where a JSON object ends, in a text that arrives in pieces."""

from __future__ import annotations


class JsonSpan:
    """Counts braces outside strings; whether what is between them is JSON is for a parser to say."""

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = self._escaped = False

    def feed(self, text: str, start: int = 0) -> int | None:
        """The position after the object's last brace, None while it goes on; ValueError for a `<` outside a string,
        which no JSON has."""
        for position in range(start, len(text)):
            character = text[position]
            if self._in_string:
                if self._escaped:
                    self._escaped = False
                elif character == "\\":
                    self._escaped = True
                elif character == '"':
                    self._in_string = False
                continue
            match character:
                case '"':
                    self._in_string = True
                case "{" | "[":
                    self._depth += 1
                case "}" | "]":
                    self._depth -= 1
                    if self._depth <= 0:
                        return position + 1
                case "<":
                    raise ValueError("no JSON has a < here")
        return None
