"""A checkpoint, opened: configuration, matrices by name, text parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from tokenline.checkpoint.adapters import Adapters
from tokenline.checkpoint.low_rank import LowRank
from tokenline.checkpoint.parts import TextParts
from tokenline.errors import CheckpointError
from tokenline.ops.arrays import HostArray


class Tensors:
    """Matrices by their Hugging Face names, read when asked for; what nobody asked for is told by `unused`.

    `adapters` are what may be added to them.
    """

    def __init__(self, names: Iterable[str], read: Callable[[str], HostArray]) -> None:
        self.adapters = Adapters()
        self._names = frozenset(names)
        self._read = read
        self._taken: set[str] = set()
        self._prefix = ""

    def __contains__(self, name: str) -> bool:
        return self._prefix + name in self._names

    def take(self, name: str, shape: tuple[int, ...]) -> HostArray:
        """The matrix, whose shape must be the configuration's; CheckpointError where it is not, or is missing."""
        name = self._prefix + name
        if name not in self._names:
            raise CheckpointError(f"the checkpoint lacks {name}", "it is incomplete; fetch it again")
        array = self._read(name)
        if tuple(array.shape) != shape:
            raise CheckpointError(
                f"{name} has shape {tuple(array.shape)} where the configuration says {shape}",
                "configuration and weights belong to different models",
            )
        self._taken.add(name)
        return array

    def adapted(self, name: str, shape: tuple[int, int]) -> dict[str, LowRank]:
        """What each adapter adds to the projection of this name; CheckpointError where it is for another shape."""
        return self.adapters.take(self._prefix + name, shape)

    def leave(self, name: str) -> None:
        """Say that the matrix is known and not needed (a tied head that is stored all the same)."""
        self._taken.add(self._prefix + name)

    def below(self, prefix: str) -> Tensors:
        """The matrices whose names begin so, by the rest of their names; the others are known and not needed."""
        made = Tensors(self._names, self._read)
        made._prefix, made._taken, made.adapters = self._prefix + prefix, self._taken, self.adapters
        made._taken.update(name for name in self._names if not name.startswith(made._prefix))
        return made

    def leave_under(self, prefix: str) -> None:
        """`leave` for all whose names begin so."""
        self._taken.update(name for name in self._names if name.startswith(prefix))

    def unused(self) -> list[str]:
        return sorted(self._names - self._taken)


@dataclass(frozen=True)
class Checkpoint:
    """`config` has the keys of a Hugging Face config.json, whatever the file format was."""

    name: str
    family: str
    config: dict[str, Any]
    tensors: Tensors
    text: TextParts
    weights_hash: str
    # generation_config.json as it stands, None where there is none.
    generation_config: dict[str, Any] | None = None
