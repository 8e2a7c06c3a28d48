"""`tokenline serve`: the checkpoint behind an OpenAI-compatible HTTP server."""

from __future__ import annotations

import signal
from typing import Annotated

import typer

from tokenline.cli.model_options import ModelOptions
from tokenline.cli.options import ENGINE, takes_options
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
) -> None:
    """Serve over HTTP; Ctrl-C or SIGTERM lets running answers finish, a second one does not."""
    # Here: `tokenline --help` needs no server.
    from tokenline.server.listen import bind, serve_until_stopped

    settings = clients.settings(frozenset({model.model}))
    listener = bind(host, port)  # first: a port in use should be known before the seconds that loading takes
    with listener:
        say(f"loading {model.model}")
        loaded = model.load(parallel=parallel)
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
