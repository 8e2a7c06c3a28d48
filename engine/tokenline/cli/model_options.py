"""Options that say which checkpoint is loaded, and how it is run."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tokenline.cli.options import ENGINE
from tokenline.errors import RequestError

if TYPE_CHECKING:
    from tokenline.client import Model


class Backend(StrEnum):
    auto = "auto"
    torch = "torch"
    mlx = "mlx"


class Dtype(StrEnum):
    auto = "auto"
    float32 = "float32"
    bfloat16 = "bfloat16"
    float16 = "float16"
    quantized = "quantized"


def _engine(*names: str, help: str, **settings: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=ENGINE, **settings)


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """Which checkpoint, and how it is run."""

    model: Annotated[
        str, typer.Option("-m", "--model", help="A Hugging Face directory, a .gguf file, or an alias.")
    ]
    backend: Annotated[Backend, _engine("--backend", help="What computes.")] = Backend.auto
    dtype: Annotated[
        Dtype, _engine("--dtype", help="Auto is float32 on a CPU, bfloat16 on an accelerator.")
    ] = Dtype.auto
    threads: Annotated[int | None, _engine("--threads", help="CPU threads.", min=1)] = None
    context_length: Annotated[
        int | None,
        _engine("--context-length", help="At most what the checkpoint allows.", min=1),
    ] = None
    cache_bytes: Annotated[int | None, _engine("--cache-bytes", help="Bound of the prompt cache.", min=0)] = (
        None
    )
    prompt_cache_file: Annotated[
        Path | None, _engine("--prompt-cache-file", help="Keeps the prompt cache: read first, written last.")
    ] = None
    kv_bits: Annotated[int | None, _engine("--kv-bits", help="4 or 8: attention caches in so many bits.")] = (
        None
    )
    weight_bits: Annotated[int | None, _engine("--weight-bits", help="4 or 8: quantizes dense weights.")] = (
        None
    )
    weight_group: Annotated[
        int | None, _engine("--weight-group", help="32, 64 or 128 weights to a scale.")
    ] = None

    adapter: Annotated[
        list[str], _engine("--adapter", help="NAME=DIR, a LoRA or DoRA; a DIR alone is its own name.")
    ] = field(default_factory=list)

    @property
    def adapters(self) -> dict[str, str]:
        """Directories by name; RequestError for one that is given twice."""
        named: dict[str, str] = {}
        for given in self.adapter:
            name, equals, directory = given.partition("=")
            if not equals or Path(given).exists():
                name, directory = Path(given).resolve().name, given
            if name in named:
                raise RequestError(
                    f"two adapters are named {name!r}", "name one: --adapter NAME=DIR", param="adapter"
                )
            named[name] = directory
        return named

    @property
    def one_adapter(self) -> str | None:
        """What an answer is given with; RequestError where several are given."""
        if len(self.adapters) > 1:
            raise RequestError(
                f"{len(self.adapters)} adapters are given for one answer",
                "give one; `tokenline serve` takes several",
                param="adapter",
            )
        return next(iter(self.adapters), None)

    def load(self, *, parallel: int = 1, **limits: int | None) -> Model:
        import tokenline  # here: `tokenline --help` needs no engine

        bounds = {
            "threads": self.threads,
            "context_length": self.context_length,
            "cache_bytes": self.cache_bytes,
            "prompt_cache_file": self.prompt_cache_file,
            "kv_bits": self.kv_bits,
            "weight_bits": self.weight_bits,
            "weight_group": self.weight_group,
            **limits,
        }
        return tokenline.load(
            self.model,
            backend=self.backend.value,
            dtype=self.dtype.value,
            parallel=parallel,
            adapters=self.adapters,
            **{name: bound for name, bound in bounds.items() if bound is not None},
        )
