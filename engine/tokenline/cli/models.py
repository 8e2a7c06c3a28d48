"""`tokenline models`: what is on disk, and how it gets there."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tokenline.checkpoint.alias import ALIASES, resolve
from tokenline.checkpoint.store import Store
from tokenline.cli.output import say, write, write_json

models = typer.Typer(help="List, fetch, inspect and remove checkpoints.", no_args_is_help=False)
Model = Annotated[
    str, typer.Argument(metavar="MODEL", help="An alias, a path, or a name on the Hugging Face hub.")
]


@models.command("list")
def list_models() -> None:
    """Aliases, and whether they have been fetched."""
    store = Store.default()
    fetched = store.names()
    for name in sorted({*ALIASES, *fetched}):
        where = str(store.path(name)) if name in fetched else "not fetched"
        size = sum(file.stat().st_size for file in store.path(name).rglob("*") if file.is_file())
        size = size or (ALIASES[name].size if name in ALIASES else 0)
        write(f"{name}\t{size / 1e6:.0f} MB\t{where}\n")


@models.command()
def pull(model: Model) -> None:
    """Fetch a checkpoint, unless it is here, and print where it is."""
    write(f"{resolve(model)}\n")


@models.command()
def inspect(model: Model) -> None:
    """Print what a checkpoint is, as JSON."""
    # Here: these read weights, and `tokenline --help` should not wait for what they need.
    from tokenline.checkpoint.open import open_checkpoint
    from tokenline.models import FAMILIES

    path = resolve(model)
    checkpoint = open_checkpoint(str(path), FAMILIES)
    tokenizer, template = checkpoint.text.tokenizer, checkpoint.text.template
    write_json(
        {
            "name": checkpoint.name,
            "path": str(Path(path).resolve()),
            "family": checkpoint.family,
            "config": checkpoint.config,
            "vocabulary_size": tokenizer.vocabulary_size,
            "eos_token_ids": sorted(tokenizer.eos_token_ids),
            "bos_token_id": tokenizer.bos_token_id,
            "adds_bos": tokenizer.add_bos,
            "chat_template": None if template is None else template.source,
            "weights_hash": checkpoint.weights_hash,
            "tokenizer_hash": tokenizer.hash,
            "template_hash": None if template is None else template.hash,
        }
    )


@models.command()
def rm(model: Annotated[str, typer.Argument(metavar="ALIAS", help="A fetched alias.")]) -> None:
    """Remove a fetched checkpoint from disk."""
    Store.default().remove(model)
    say(f"removed {model}")
