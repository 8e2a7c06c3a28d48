"""`tokenline serve`: the checkpoint behind an OpenAI-compatible HTTP server."""

from __future__ import annotations

import signal
from typing import Annotated

import typer

from tokenline.cli.model_options import ModelOptions
from tokenline.cli.options import ENGINE, parsed_bytes, takes_options
from tokenline.cli.output import Interrupted, say
from tokenline.cli.serve_options import ServeOptions


@takes_options
def serve(
    model: ModelOptions,
    clients: ServeOptions,
    host: Annotated[str, typer.Option("--host", help="Where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0 takes a free one.")] = 8080,
    parallel: Annotated[
        int, typer.Option("--parallel", min=1, help="Answers under way at once.", rich_help_panel=ENGINE)
    ] = 4,
    max_queue: Annotated[
        int | None,
        typer.Option("--max-queue", min=1, help="Requests that may wait.", rich_help_panel=ENGINE),
    ] = None,
    prompt_concurrency: Annotated[
        int | None,
        typer.Option(
            "--prompt-concurrency",
            min=1,
            help="Prompts that are read by turns, a piece at a time.",
            rich_help_panel=ENGINE,
        ),
    ] = None,
    kv_budget: Annotated[
        str | None,
        typer.Option(
            "--kv-budget",
            help="Bytes for what running answers remember, such as 512M or 2G; three quarters of what is free, unless "
            "given.",
            rich_help_panel=ENGINE,
        ),
    ] = None,
) -> None:
    """Serve over HTTP; Ctrl-C or SIGTERM lets running answers finish, a second one does not."""
    budget = None if kv_budget is None else parsed_bytes("--kv-budget", kv_budget)
    # Here: `tokenline --help` needs no server.
    from tokenline.server.listen import bind, serve_until_stopped

    settings = clients.settings(frozenset({model.model}))
    listener = bind(host, port)  # first: a port in use should be known before the seconds that loading takes
    with listener:
        say(f"loading {model.model}")
        loaded = model.load(
            parallel=parallel, max_queue=max_queue, prompt_concurrency=prompt_concurrency, kv_budget=budget
        )
        manifest = loaded.manifest
        name = f"{model.model}, {manifest['backend']}, {manifest['dtype']}"
        try:
            stopped_by = serve_until_stopped(
                loaded,
                listener,
                settings,
                ready=lambda url: say(f"listening on {url} ({name})"),
            )
        finally:
            loaded.close()
    if stopped_by == signal.SIGINT:
        raise Interrupted
    say("stopped")
