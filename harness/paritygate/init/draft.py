"""A first policy as text: two arms of one engine, a few cases, and the claim that both say the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from paritygate.policy import POLICY_SCHEMA


@dataclass(frozen=True)
class Engine:
    """A way to drive an engine that `init` can ask about."""

    kind: str
    what: str
    model: str  # how MODEL is asked for; "" where the engine's own place says it
    asks: tuple[str, ...] = ()
    fixed: dict[str, Any] = field(default_factory=dict)

    @property
    def streams(self) -> bool:
        """Whether its answers can be had in pieces: a server's."""
        return self.kind == "http"


ENGINES = {
    "transformers": Engine("transformers", "transformers, in process", "a Hugging Face directory or a .gguf file"),
    "mlx-lm": Engine("mlx-lm", "mlx-lm, in process", "a Hugging Face directory or a .gguf file"),
    "llama.cpp": Engine("llama.cpp", "llama.cpp, in process (xllamacpp)", "a .gguf file"),
    "tokenline": Engine("tokenline", "tokenline, in process", "a directory, a .gguf file or an alias",
                        fixed={"backend": "torch"}),
    "url": Engine("http", "a server of OpenAI's interface that runs already", "",
                  ("url", "dialect", "served_model", "api_key_env")),
    "server": Engine("http", "a server that paritygate starts and stops", "a path, or a name that the server knows",
                     ("command", "dialect", "served_model")),
    "command": Engine("command", "a program that prints one answer", "a path, or a name that the program knows",
                      ("command",), {"output": "text"}),
}  # fmt: skip
PROMPTS = ("The capital of France is", "Once upon a time, in a small village by the sea,")


def quoted(value: Any) -> str:
    """A value as TOML."""
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return "[" + ", ".join(quoted(item) for item in value) + "]"


def _table(name: str, entries: dict[str, Any]) -> Iterator[str]:
    yield f"[{name}]"
    for key, value in entries.items():
        yield f"{key} = {quoted(value)}"
    yield ""


def draft(
    engine: Engine, *, name: str, model: str, options: dict[str, Any], prompts: list[str], max_tokens: int
) -> str:
    """The file. An HTTP engine is asked whole and streamed; any other twice, in processes of their own."""
    other = "streamed" if engine.streams else "again"
    arm = {"kind": engine.kind, **engine.fixed, **options}
    cases = [f"prompt-{number}" for number in range(1, len(prompts) + 1)]
    lines = [f"schema = {POLICY_SCHEMA}", ""]
    lines += _table("checkpoint", {"name": name, "model": model or name})
    lines += _table("arms.engine", arm)
    lines += _table(f"arms.{other}", arm | ({"streamed": True} if engine.streams else {}))
    for case, prompt in zip(cases, prompts, strict=True):
        lines += _table("[cases]", {"name": case, "prompt": prompt, "max_tokens": max_tokens})
    claim = "streamed-is-whole" if engine.streams else "repeatable"
    lines += _table(f"claims.{claim}", {"kind": "identity", "arms": ["engine", other], "cases": cases})
    return "\n".join(lines)
