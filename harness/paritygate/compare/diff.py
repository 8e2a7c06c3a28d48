"""Two streams aligned token by token, as data that a page or a terminal can draw."""

from __future__ import annotations

import difflib
from typing import Any

from paritygate.stream import Stream


def _spelled(stream: Stream) -> list[tuple[int, str]]:
    texts = [position.token for position in stream.positions or ()]
    ids = stream.token_ids or ()
    return [(token_id, texts[i] if i < len(texts) else "") for i, token_id in enumerate(ids)]


def diff(reference: Stream, candidate: Stream) -> list[dict[str, Any]]:
    """Aligned blocks, in order: {op, reference: [[index, id, text]...], candidate: [...]}.

    `op` is equal, replace, insert (only the candidate has it) or delete (only the reference has it).
    """
    ours, theirs = _spelled(reference), _spelled(candidate)
    matcher = difflib.SequenceMatcher(None, [i for i, _ in ours], [i for i, _ in theirs], autojunk=False)
    return [
        {
            "op": op,
            "reference": [[i, *ours[i]] for i in range(a, b)],
            "candidate": [[i, *theirs[i]] for i in range(c, d)],
        }
        for op, a, b, c, d in matcher.get_opcodes()
    ]
