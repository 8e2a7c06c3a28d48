"""The four ways to ask a server for an answer, and a checkpoint whose answers last."""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import safetensors.numpy
from published import faults

from tokenline.client import Model

GENERATION = {
    "do_sample": True, "temperature": 0.7, "top_k": 5, "top_p": 0.9, "repetition_penalty": 1.25, "max_new_tokens": 6,
    # None that could be drawn, so that an answer lasts.
    "eos_token_id": 300, "transformers_version": "5.0.0",
}  # fmt: skip
HI = [{"role": "user", "content": "hi"}]
# The four ways to ask, each with a body that runs for long.
ASKED: dict[str, dict[str, Any]] = {
    "/v1/completions": {"prompt": "Once", "max_tokens": 1900, "ignore_eos": True},
    "/v1/chat/completions": {"messages": HI, "max_tokens": 1900, "ignore_eos": True},
    "/v1/responses": {"model": "small", "input": "hi", "max_output_tokens": 1900},
    "/v1/messages": {"model": "small", "messages": HI, "max_tokens": 1900},
}


@contextlib.contextmanager
def running(url: str, model: Model, headers: dict[str, str] | None = None) -> Iterator[Iterator[str]]:
    """A stream under way; after it no row is left."""
    body = {**ASKED["/v1/completions"], "stream": True}
    with httpx.stream("POST", f"{url}/v1/completions", json=body, headers=headers, timeout=60) as response:
        lines = (line for line in response.iter_lines() if line)
        next(lines)
        yield lines
    wait_until_idle(model)


def wait_until_idle(model: Model) -> None:
    end = time.monotonic() + 5
    while model.slots():
        assert time.monotonic() < end, "a row is still alive"
        time.sleep(0.01)


def save_checkpoint(directory: Path, tiny: Path) -> tuple[Path, Path]:
    """The tiny checkpoint with sampling of its own and no end of sequence, and an adapter as PEFT lays one out."""
    checkpoint, adapter = directory / "small", directory / "polite"
    shutil.copytree(tiny, checkpoint)
    (checkpoint / "generation_config.json").write_text(json.dumps(GENERATION))
    adapter.mkdir()
    settings = {"peft_type": "LORA", "r": 4, "lora_alpha": 4, "target_modules": ["q_proj"]}
    (adapter / "adapter_config.json").write_text(json.dumps(settings))
    drawn = np.random.default_rng(5)
    place = "base_model.model.model.layers.{}.self_attn.q_proj.lora_{}.weight"
    matrices = {
        place.format(layer, side): drawn.normal(0, 0.3, shape).astype(np.float32)
        for layer in range(3)
        for side, shape in (("A", (4, 64)), ("B", (64, 4)))
    }
    safetensors.numpy.save_file(matrices, adapter / "adapter_model.safetensors")
    return checkpoint, adapter


def envelope_of(path: str, response: httpx.Response) -> dict[str, Any]:
    """The error, which must be in the words of the API."""
    if path == "/v1/messages":
        assert faults("anthropic", "ErrorResponse", response.json()) == []
    else:
        assert faults("openai_chat", "ErrorResponse", response.json()) == []
    return response.json()["error"]
