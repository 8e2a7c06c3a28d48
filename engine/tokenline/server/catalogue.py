"""The names that clients may ask for: the model, its aliases, its adapters."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tokenline.server.errors import NotFound

if TYPE_CHECKING:
    from tokenline.client import Model


@dataclass(frozen=True)
class Catalogue:
    """An adapter is a model of its own to clients, with the base as its parent."""

    model: Model
    aliases: frozenset[str] = frozenset()
    created: int = field(default_factory=lambda: int(time.time()))

    def answering(self, name: str | None) -> tuple[str, str | None]:
        """(the name that signs the answer, the adapter or None) for the name that a client gave; NotFound."""
        if name is None or name == self.model.name or name in self.aliases:
            return self.model.name, None
        if name in self.model.adapters:
            return name, name
        known = ", ".join((self.model.name, *self.model.adapters))
        raise NotFound(f"there is no model {name!r} here", f"use {known}", param="model")

    def cards(self) -> list[dict[str, Any]]:
        """OpenAI's model objects, the base first; `parent` is vLLM's word for what an adapter stands on."""
        return [self.card(name) for name in (self.model.name, *self.model.adapters)]

    def card(self, name: str) -> dict[str, Any]:
        signed, adapter = self.answering(name)
        return {
            "id": signed,
            "object": "model",
            "created": self.created,
            "owned_by": "tokenline",
            "parent": None if adapter is None else self.model.name,
            "max_model_len": self.model.context_length,
        }
