"""The table: llama.cpp's architectures by the name that a file says (`general.architecture`)."""

from __future__ import annotations

from tokenline.checkpoint.gguf.architecture import Architecture
from tokenline.checkpoint.gguf.delta_net import DELTA_NET_ARCHITECTURES
from tokenline.checkpoint.gguf.dense import DENSE_ARCHITECTURES
from tokenline.checkpoint.gguf.experts import EXPERT_ARCHITECTURES
from tokenline.checkpoint.gguf.recurrent import RECURRENT_ARCHITECTURES
from tokenline.checkpoint.gguf.said import Said
from tokenline.errors import CheckpointError

_ALL = {
    **DENSE_ARCHITECTURES,
    **EXPERT_ARCHITECTURES,
    **RECURRENT_ARCHITECTURES,
    **DELTA_NET_ARCHITECTURES,
}
_WITH_EXPERTS = {"llama": "mixtral"}  # one name for two families: with experts it is this row
ARCHITECTURES: dict[str, Architecture] = {
    name: row for name, row in _ALL.items() if name not in _WITH_EXPERTS.values()
}


def architecture_of(said: Said) -> Architecture:
    """CheckpointError, with the list, for one that is not supported."""
    name = said.architecture
    if name not in ARCHITECTURES:
        raise CheckpointError(
            f"{said.file} holds the architecture {name!r}, which is not supported",
            f"supported in GGUF: {', '.join(sorted(ARCHITECTURES))}",
        )
    if name in _WITH_EXPERTS and said.whole("expert_count", 0):
        return _ALL[_WITH_EXPERTS[name]]
    return ARCHITECTURES[name]
