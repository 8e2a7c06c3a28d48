"""HTTP/1.1 whose every refusal is OpenAI's envelope, also of what is no HTTP."""

from __future__ import annotations

import h11
import msgspec
from uvicorn.protocols.http.h11_impl import H11Protocol

from tokenline.errors import RequestError
from tokenline.server.errors import openai_envelope


class Protocol(H11Protocol):
    def send_400_response(self, msg: str) -> None:
        """Answer what could not be read as a request, and close."""
        body = msgspec.json.encode(
            openai_envelope(RequestError("the request is not valid HTTP/1.1", "check the client"))
        )
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
        ]
        for event in (
            h11.Response(status_code=400, headers=headers, reason=b"Bad Request"),
            h11.Data(data=body),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
