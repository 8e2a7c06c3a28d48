"""A checkpoint on the Hugging Face hub, through its own client and its own cache."""

from __future__ import annotations

import sys
from pathlib import Path

import httpx

from tokenline.errors import CheckpointError

NEEDED = ["*.json", "*.jinja", "*.safetensors"]


def fetch_from_hub(name: str) -> Path:
    """`owner/repository` as a directory, or `owner/repository/file.gguf` as a file."""
    # Imported here: nobody who loads a file from disk should pay for it.
    import huggingface_hub

    owner, repository, *file_name = name.split("/", maxsplit=2)
    repo_id = f"{owner}/{repository}"
    print(f"tokenline: looking for {name} on the Hugging Face hub", file=sys.stderr, flush=True)
    try:
        if file_name:
            return Path(huggingface_hub.hf_hub_download(repo_id, file_name[0]))
        directory = Path(huggingface_hub.snapshot_download(repo_id, allow_patterns=NEEDED))
    except (OSError, ValueError, httpx.HTTPError) as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise CheckpointError(
            f"there is no {name} on disk, and the Hugging Face hub gave none ({reason})",
            "check the name, or the network, or `hf auth login` for a private one",
        ) from None
    if not (directory / "config.json").is_file():
        raise CheckpointError(
            f"{name} on the Hugging Face hub has no config.json", f"name a file of it: {name}/FILE.gguf"
        )
    return directory
