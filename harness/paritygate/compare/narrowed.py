"""What a comparison could not look at, because an arm does not give it, in words that a verdict can end with."""

from __future__ import annotations

from paritygate.stream import Stream

LOOKED_AT = (
    ("prompt tokens", "prompt_token_ids"),
    ("token ids", "token_ids"),
    ("finish", "finish_reason"),
    ("usage", "usage"),
)


def narrowed(reference: Stream, candidate: Stream) -> str:
    """ "" where everything was compared; else what was compared, and who does not give the rest."""
    compared, left_out = ["text"], []
    for what, field in LOOKED_AT:
        silent = [side.arm for side in (reference, candidate) if getattr(side, field) is None]
        if not silent:
            compared.append(what)
        elif what != "prompt tokens" or None not in (reference.token_ids, candidate.token_ids):
            verb = "is" if what in ("finish", "usage") else "are"
            left_out.append(f"{what} {verb} not given by {' and '.join(dict.fromkeys(silent))}")
    if not left_out:
        return ""
    listed = ", ".join(compared[:-1]) + f" and {compared[-1]}" if len(compared) > 1 else compared[0]
    return f"compared {listed}; {'; '.join(left_out)}"
