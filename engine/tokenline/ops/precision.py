"""In how many bits weights and caches are kept, where that is fewer than a dtype has."""

from __future__ import annotations

from dataclasses import dataclass

from tokenline.errors import BackendError

BITS = (4, 8)
GROUPS = (32, 64, 128)  # numbers that share a scale and a bias


@dataclass(frozen=True)
class Precision:
    """None: as the checkpoint and the dtype say. BackendError for what is not supported.

    `weight_bits` quantizes dense matrices as they are loaded, in groups of `weight_group` along their rows; `kv_bits`
    quantizes what attention caches hold.
    """

    weight_bits: int | None = None
    weight_group: int = 64
    kv_bits: int | None = None

    def __post_init__(self) -> None:
        for name, bits in (("weight_bits", self.weight_bits), ("kv_bits", self.kv_bits)):
            if bits is not None and bits not in BITS:
                raise BackendError(f"{name} {bits} is not supported", f"use {' or '.join(map(str, BITS))}")
        if self.weight_group not in GROUPS:
            raise BackendError(
                f"weight_group {self.weight_group} is not supported",
                f"use one of {', '.join(map(str, GROUPS))}",
            )
