"""From adapters' directories to what they add."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from tokenline.checkpoint.adapters import Adapter, Adapters
from tokenline.checkpoint.hugging_face import SafetensorsFile, read_json
from tokenline.checkpoint.mlx_adapter import read_mlx
from tokenline.checkpoint.peft_adapter import read_peft
from tokenline.errors import CheckpointError

_CONFIG, _PEFT, _MLX = "adapter_config.json", "adapter_model.safetensors", "adapters.safetensors"


def open_adapters(directories: Mapping[str, str | Path], layers: int) -> Adapters:
    """PEFT's or mlx-lm's, for a model of so many layers; CheckpointError, naming the adapter, for one that cannot be
    used as it is."""
    opened = {}
    for name, directory in directories.items():
        if not name:
            raise CheckpointError(f"the adapter in {directory} has no name", "give it one")
        try:
            opened[name] = _open(Path(directory).expanduser(), layers)
        except CheckpointError as error:
            raise CheckpointError(f"the adapter {name!r} cannot be used: {error.what}", error.mend) from error
    return Adapters(opened)


def _open(directory: Path, layers: int) -> Adapter:
    if not directory.is_dir():
        raise CheckpointError(f"there is no directory {directory}", "give the adapter's directory")
    config = read_json(directory / _CONFIG)
    weights = next((each for each in (_PEFT, _MLX) if (directory / each).exists()), None)
    if weights is None:
        raise CheckpointError(
            f"{directory.name}/ has neither {_PEFT} nor {_MLX}",
            "save it as safetensors: pickles are not read",
        )
    file = SafetensorsFile(directory / weights)
    terms = read_peft(config, file) if weights == _PEFT else read_mlx(config, file, layers)
    if not terms:
        raise CheckpointError(f"{weights} holds no matrices", "fetch it again")
    digest = hashlib.sha256()
    for part in (_CONFIG, weights):
        digest.update(hashlib.sha256((directory / part).read_bytes()).digest())
    return Adapter(terms, digest.hexdigest())
