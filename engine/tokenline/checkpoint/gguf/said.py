"""What a file's metadata says under the keys of its architecture, checked as it is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tokenline.errors import CheckpointError

MEND = "fetch or convert the checkpoint again"


@dataclass(frozen=True)
class Said:
    """`values` is all metadata, `tensors` are the file's tensors by their names in it. Reading raises CheckpointError
    for a key that is missing or holds something else."""

    file: str
    architecture: str
    values: Mapping[str, Any]
    tensors: Mapping[str, Any]

    def __contains__(self, key: str) -> bool:
        return f"{self.architecture}.{key}" in self.values

    def of(self, key: str, kind: tuple[type, ...], default: Any, what: str) -> Any:
        name = f"{self.architecture}.{key}"
        value = self.values.get(name, default)
        if value is None:
            raise CheckpointError(f"{self.file} lacks the metadata key {name}", MEND)
        if not isinstance(value, kind) or (isinstance(value, bool) and bool not in kind):
            raise CheckpointError(f"{self.file} says that {name} is {value!r}, which is not {what}", MEND)
        return value

    def whole(self, key: str, default: int | None = None) -> int:
        """Above zero; from zero on where zero is what a file means that does not say it."""
        return int(self._positive(key, self.of(key, (int,), default, "a whole number"), default))

    def number(self, key: str, default: float | None = None) -> float:
        """As `whole`."""
        return float(self._positive(key, self.of(key, (int, float), default, "a number"), default))

    def _positive(self, key: str, value: float, default: float | None) -> float:
        if not (value > 0 or (value == 0 and default == 0)):
            raise CheckpointError(f"{self.file} says that {self.architecture}.{key} is {value}", MEND)
        return value

    def flag(self, key: str, default: bool | None = None) -> bool:
        return bool(self.of(key, (bool, int), default, "true or false"))

    @property
    def layers(self) -> int:
        """Without those after the last, which draft further tokens."""
        count = self.whole("block_count") - self.whole("nextn_predict_layers", 0)
        if count < 1:
            raise CheckpointError(f"{self.file} has no layer that is not for drafting", MEND)
        return count

    def by_layer(self, key: str, default: int | None = None) -> list[int]:
        """One number for each layer, or one for all."""
        value = self.of(key, (int, list), default, "a whole number or one for each layer")
        count = self.whole("block_count")
        if isinstance(value, int):
            return [value] * self.layers
        if len(value) != count or not all(isinstance(each, int) and each >= 0 for each in value):
            raise CheckpointError(
                f"{self.file} says {self.architecture}.{key} for {len(value)} layers of {count}", MEND
            )
        return value[: self.layers]

    def has(self, ending: str) -> bool:
        """Whether some tensor's name ends so."""
        return any(name.endswith(ending) for name in self.tensors)


# A row of a table: how a key of config.json is read. What is no function is the value itself.
Reader = Callable[[Said], Any]


def whole(key: str, default: int | None = None) -> Reader:
    return lambda said: said.whole(key, default)


def number(key: str, default: float | None = None) -> Reader:
    return lambda said: said.number(key, default)


def flag(key: str, default: bool | None = None) -> Reader:
    return lambda said: said.flag(key, default)


def most(key: str) -> Reader:
    """The largest of what is said of the layers, which is above zero."""

    def read(said: Said) -> int:
        largest = max(said.by_layer(key), default=0)
        if largest < 1:
            raise CheckpointError(f"{said.file} says that {said.architecture}.{key} is {largest}", MEND)
        return largest

    return read


def has(ending: str) -> Reader:
    return lambda said: said.has(ending)
