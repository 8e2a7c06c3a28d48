"""/v1/messages/count_tokens: how long a prompt would be."""

from __future__ import annotations

from typing import Any

from tokenline.errors import RequestError
from tokenline.server.catalogue import Catalogue
from tokenline.server.drawn_request import request_from
from tokenline.server.messages.bodies import CountBody
from tokenline.server.messages.requests import messages_spelled, prompt_fields


def count_tokens(catalogue: Catalogue, body: CountBody) -> dict[str, Any]:
    """Tokens of the messages, the system prompt and the tools, as the chat template writes them."""
    _, adapter = catalogue.answering(body.model)
    try:
        request = request_from({**prompt_fields(body), "adapter": adapter}, {})
        return {"input_tokens": len(catalogue.model.prompt(request).token_ids)}
    except RequestError as error:
        raise messages_spelled(error, body) from None
