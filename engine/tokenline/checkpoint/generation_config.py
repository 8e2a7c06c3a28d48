"""What a checkpoint's authors would draw with: `generation_config.json`, in the words of a request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# transformers' names of what acts only where `do_sample` is true, with ours.
_DRAWN = {"temperature": float, "top_k": int, "top_p": float, "min_p": float, "typical_p": float}


def generation_defaults(config: Mapping[str, Any] | None) -> dict[str, Any]:
    """Fields of a request, as transformers would read the file: without `do_sample` nothing is drawn at random."""
    if config is None:
        return {}
    defaults: dict[str, Any] = {}
    if config.get("do_sample") is True:
        # transformers draws at 1 where the file names no temperature.
        defaults = {"temperature": 1.0}
        defaults |= {
            name: kind(config[name]) for name, kind in _DRAWN.items() if _is_number(config.get(name))
        }
    penalty = config.get("repetition_penalty")
    if isinstance(penalty, int | float) and penalty != 1:
        # Of every token so far, as transformers has it.
        defaults |= {"repetition_penalty": float(penalty), "penalty_window": -1}
    if isinstance(bound := config.get("max_new_tokens"), int):
        defaults["max_tokens"] = bound
    return defaults


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
