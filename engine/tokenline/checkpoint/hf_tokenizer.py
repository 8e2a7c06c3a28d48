"""The tokenizer and chat template of a Hugging Face directory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from tokenline.checkpoint.parts import TextParts
from tokenline.errors import CheckpointError
from tokenline.text.chat_template import ChatTemplate
from tokenline.text.tokenizer import Tokenizer as TextTokenizer

FETCH_AGAIN = "fetch the checkpoint again"


def hf_text_parts(directory: Path) -> TextParts:
    """Tokenizer and template from `tokenizer.json` and its neighbours; CheckpointError names the bad file."""
    path = directory / "tokenizer.json"
    if not path.is_file():
        raise CheckpointError(f"{path} is missing", "use a checkpoint with a tokenizer.json")
    try:
        backend = Tokenizer.from_str(path.read_text(encoding="utf-8"))
    except Exception as error:  # the tokenizers library raises nothing narrower than Exception
        raise CheckpointError(f"{path} is not a tokenizer ({_first_line(error)})", FETCH_AGAIN) from None
    config = _read(directory / "tokenizer_config.json")
    bos, eos = _content(config.get("bos_token")), _content(config.get("eos_token"))
    bos_id = None if bos is None else backend.token_to_id(bos)
    tokenizer = TextTokenizer(
        backend,
        eos_token_ids=_eos_token_ids(directory, backend, eos),
        bos_token_id=bos_id,
        add_bos=_adds_bos(backend, config, bos_id),
    )
    source = _template(directory, config)
    return TextParts(tokenizer, None if source is None else ChatTemplate(source, bos, eos))


def _eos_token_ids(directory: Path, backend: Tokenizer, eos: str | None) -> frozenset[int]:
    """What ends a generation: `generation_config.json` first, as it lists the end of a turn too."""
    for name in ("generation_config.json", "config.json"):
        declared = _read(directory / name).get("eos_token_id")
        if declared is not None:
            return frozenset(declared if isinstance(declared, list) else [declared])
    token_id = None if eos is None else backend.token_to_id(eos)
    return frozenset() if token_id is None else frozenset({token_id})


def _adds_bos(backend: Tokenizer, config: dict[str, Any], bos_id: int | None) -> bool:
    if isinstance(declared := config.get("add_bos_token"), bool):
        return declared
    return bos_id is not None and backend.encode("a").ids[:1] == [bos_id]


def _template(directory: Path, config: dict[str, Any]) -> str | None:
    path = directory / "chat_template.jinja"
    if path.is_file():
        return path.read_text(encoding="utf-8")
    declared = config.get("chat_template")
    if isinstance(declared, list):  # several by name; the one without a purpose of its own is "default"
        named = {entry.get("name"): entry.get("template") for entry in declared}
        return named.get("default")
    return declared


def _content(token: Any) -> str | None:
    """A token in tokenizer_config.json is its text, or an object that holds it."""
    return token.get("content") if isinstance(token, dict) else token


def _read(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise CheckpointError(f"{path} is not JSON ({_first_line(error)})", FETCH_AGAIN) from None
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} is not a JSON object", FETCH_AGAIN)
    return value


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
