"""A model behind HTTP, in this process, on a free port."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from tokenline.client import Model
from tokenline.server.listen import Server, bind
from tokenline.server.settings import ServerSettings


@contextlib.contextmanager
def serving(model: Model, settings: ServerSettings | None = None) -> Iterator[str]:
    """Its URL."""
    ready = threading.Event()
    with bind("127.0.0.1", 0) as listener:
        server = Server(model, settings or ServerSettings(), ready.set)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        assert ready.wait(20)
        host, port = listener.getsockname()
        yield f"http://{host}:{port}"
        server.should_exit = True
        thread.join(20)
