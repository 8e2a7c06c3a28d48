"""The [faults] table of a policy: what is planted, where it is tried, and how many must be caught."""

from __future__ import annotations

import msgspec

from paritygate.quantities import Count, Seconds, Share


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
    sample: Count = 3
    floor: Share = 1.0
    timeout_s: Seconds = 300.0
