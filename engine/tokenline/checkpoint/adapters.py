"""The adapters beside a checkpoint, and which of them the forward under way uses."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tokenline.checkpoint.low_rank import LowRank
from tokenline.errors import CheckpointError

# What stands before `layers` depends on who wrote the file, and on whether the model is a part of more.
_ROOT = re.compile(r"^(?:(?:model|language_model|backbone)\.)+")


@dataclass(frozen=True)
class Adapter:
    """`terms` by module; `hash` is of its configuration and weights."""

    terms: dict[str, LowRank]
    hash: str


class Adapters:
    """By name. What a matrix takes is handed out once; `active` is "" where the model's own weights alone are used."""

    def __init__(self, adapters: Mapping[str, Adapter] | None = None) -> None:
        adapters = adapters or {}
        self.hashes = {name: adapter.hash for name, adapter in adapters.items()}
        self._left = {
            name: {_ROOT.sub("", module): term for module, term in adapter.terms.items()}
            for name, adapter in adapters.items()
        }
        self.active = ""

    def take(self, module: str, shape: tuple[int, int]) -> dict[str, LowRank]:
        """What each adapter adds to the matrix of this module; CheckpointError for one of another shape."""
        taken = {}
        for name, terms in self._left.items():
            term = terms.pop(_ROOT.sub("", module), None)
            if term is None:
                continue
            if term.shape != shape:
                raise CheckpointError(
                    f"the adapter {name!r} has a {module} for a matrix {list(term.shape)}, "
                    f"the model's is {list(shape)}",
                    "it was made for another model",
                )
            taken[name] = term
        return taken

    def require_all_taken(self) -> None:
        """CheckpointError for the first module that no matrix has asked for."""
        for name, terms in self._left.items():
            if terms:
                raise CheckpointError(
                    f"the adapter {name!r} changes {len(terms)} modules that take no adapter here, such as "
                    f"{min(terms)}",
                    "it was made for another model, or changes more than projections, such as embeddings",
                )

    @contextlib.contextmanager
    def using(self, name: str) -> Iterator[None]:
        """Projections that are computed meanwhile are this adapter's."""
        before, self.active = self.active, name
        try:
            yield
        finally:
            self.active = before
