"""What has to be the same for a state to be found again: all that it was computed from and with, but the text."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_SETTINGS = (
    "version", "backend", "device", "dtype", "weight_bits", "weight_group", "kv_bits", "threads", "blas", "family",
    "weights_hash", "template_hash", "prefill_size", "libraries", "machine",
)  # fmt: skip


def namespace_of(manifest: Mapping[str, Any], context_length: int) -> str:
    """Of a model's states, as hexadecimal digits: other kernels, or other code, leave other bits; some rotations depend
    on the context's length."""
    told = {name: manifest[name] for name in _SETTINGS}
    told |= {"context_length": context_length, "processor": _processor(), "code": _code()}
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def _processor() -> str:
    """Libraries choose their kernels by it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("model name", "CPU part"))), platform.machine())


def _code() -> str:
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()
