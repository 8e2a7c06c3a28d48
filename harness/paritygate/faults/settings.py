"""The [faults] table of a policy: what is planted, where it is tried, and how many must be caught."""

from __future__ import annotations

import msgspec


class FaultsPolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`catalogue` files hold the faults. A planted copy is judged by the paritygate.toml of its folder `target`.

    `python_path` are the folders of the copy that Python imports from first, so that the planted engine is the one that
    runs; `probe` is a module that must then come from the copy. `verify` tries `sample` faults, others on every commit,
    and demands that at least the share `floor` of them is caught.
    """

    catalogue: tuple[str, ...] = ()
    target: str = "."
    python_path: tuple[str, ...] = ()
    probe: str = ""
    sample: int = 3
    floor: float = 1.0
    timeout_s: float = 300.0

    def __post_init__(self) -> None:
        if not 0 < self.floor <= 1 or self.sample < 1 or self.timeout_s <= 0:
            raise ValueError("faults: floor is a share above 0, sample and timeout_s are at least 1")
