"""Text as it is shown: what would steer a terminal, hide or reorder text, or is forbidden in XML, is written out."""

from __future__ import annotations

import re

# Control characters but tab and line feed, what reorders text or breaks its lines, half characters, non-characters.
_STEERING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]"
)


def shown(text: str) -> str:
    """The text with such characters as `\\x1b` or `\\u202e`; it prints, encodes and fits into XML everywhere."""
    return _STEERING.sub(lambda found: ascii(found.group())[1:-1], text)
