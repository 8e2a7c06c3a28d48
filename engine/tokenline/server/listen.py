"""The socket and the process around the application."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import signal
import socket
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING

import uvicorn

from tokenline.errors import TokenlineError
from tokenline.server.app import application
from tokenline.server.endpoint import Live
from tokenline.server.errors import Unavailable
from tokenline.server.http11 import Protocol
from tokenline.server.settings import ServerSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    from tokenline.client import Model

BACKLOG = 2048
OVER = Unavailable("the server is stopping and ended the answer", "ask again when it runs")


class ListenError(TokenlineError):
    """An address that cannot be listened on."""


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens from now on, so that nobody else takes the port while a model loads."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ListenError(
            f"{host} is no address to listen on ({error.strerror})", "use --host 127.0.0.1"
        ) from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise ListenError(
                f"port {port} on {host} is in use", "choose another: --port N, 0 for any"
            ) from None
        raise ListenError(
            f"cannot listen on {host} port {port} ({error.strerror})", "choose another"
        ) from None
    return listener


class Server(uvicorn.Server):
    """uvicorn with one model behind it, saying when it is ready; a stop gives answers under way the settings' time."""

    def __init__(self, model: Model, settings: ServerSettings, ready: Callable[[], None]) -> None:
        self._live = Live()
        app = application(model, settings, self._live)
        super().__init__(
            uvicorn.Config(app, http=Protocol, log_level="warning", access_log=False, lifespan="off")
        )
        self._ready, self._drain_timeout_s = ready, settings.drain_timeout_s
        self._told_over = False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        if self.started:
            self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        timer = None
        if self._drain_timeout_s is not None:
            timer = asyncio.get_running_loop().call_later(self._drain_timeout_s, self._live.stop, OVER)
        try:
            await super().shutdown(sockets)
        finally:
            if timer is not None:
                timer.cancel()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A second signal, of either kind, ends the answers under way, which are told so; a third cuts them off."""
        if self.should_exit and not self._told_over:
            self._told_over = True
            self._loop.call_soon_threadsafe(self._live.stop, OVER)
        elif self.should_exit:
            self.force_exit = True
            # What is cut off because somebody asked twice is no error; uvicorn would print a traceback for it.
            logging.getLogger("uvicorn.error").disabled = True
        if not self.should_exit or self.force_exit:
            super().handle_exit(sig, frame)


def serve_until_stopped(
    model: Model, listener: socket.socket, settings: ServerSettings, *, ready: Callable[[str], None]
) -> int | None:
    """Serve until a signal, let answers under way finish, and return the signal; a second one cuts them off."""
    host, port = listener.getsockname()[:2]
    url = f"http://[{host}]:{port}" if listener.family == socket.AF_INET6 else f"http://{host}:{port}"
    server = Server(model, settings, lambda: ready(url))
    with _received(server) as signals:
        server.run(sockets=[listener])
    return signals[0] if signals else None


@contextlib.contextmanager
def _received(server: Server) -> Iterator[list[int]]:
    """Signals before uvicorn has its handlers stop it all the same; those that it raises again afterwards, where
    they would end the process, are only noted.
    """
    signals: list[int] = []

    def note(number: int, _: FrameType | None) -> None:
        signals.append(number)
        server.should_exit = True

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
