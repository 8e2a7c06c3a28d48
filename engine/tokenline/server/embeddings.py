"""/v1/embeddings: texts as vectors, the mean of their last hidden states."""

from __future__ import annotations

import base64
from typing import Annotated, Any, Literal

import msgspec
import numpy as np

from tokenline.errors import RequestError
from tokenline.request.bounds import require
from tokenline.server.bodies import PROMPTS
from tokenline.server.catalogue import Catalogue
from tokenline.server.protocol import prompts_of

# OpenAI's bound.
MAX_INPUTS = 2048


class EmbeddingBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """`dimensions` may only say how many there are: no model here was trained to have its vectors cut off."""

    input: Annotated[Any, msgspec.Meta(extra_json_schema=PROMPTS)]
    model: str | None = None
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: int | None = None
    user: str | None = None


def embeddings(catalogue: Catalogue, body: EmbeddingBody) -> dict[str, Any]:
    """One vector of length 1 for each input; base64 is of little-endian float32, as OpenAI's is."""
    name, adapter = catalogue.answering(body.model)
    model = catalogue.model
    inputs = prompts_of(body.input, "input")
    require(
        len(inputs) <= MAX_INPUTS, "input", f"{len(inputs)} inputs were sent", f"send {MAX_INPUTS} at most"
    )
    data, count = [], 0
    for index, given in enumerate(inputs):
        ids = _token_ids(catalogue, given)
        vector = model.embed(ids, adapter)
        require(body.dimensions in (None, len(vector)), "dimensions",
                f"{body.dimensions} dimensions were asked for", f"vectors here have {len(vector)}")  # fmt: skip
        data.append({"object": "embedding", "index": index, "embedding": _encoded(vector, body)})
        count += len(ids)
    return {
        "object": "list",
        "data": data,
        "model": name,
        "usage": {"prompt_tokens": count, "total_tokens": count},
    }


def _token_ids(catalogue: Catalogue, given: dict[str, Any]) -> list[int]:
    model = catalogue.model
    try:
        ids = (
            model.tokenizer.encode(given["prompt"]) if "prompt" in given else list(given["prompt_token_ids"])
        )
    except RequestError as error:
        raise RequestError(error.what, error.mend, param="input") from None
    require(0 < len(ids) <= model.context_length, "input", f"an input has {len(ids)} tokens",
            f"send 1 to {model.context_length}")  # fmt: skip
    outside = [token for token in ids if not 0 <= token < model.vocabulary_size]
    require(not outside, "input", f"token {outside[:1]} is outside the vocabulary of {model.vocabulary_size}",
            "use the checkpoint's token ids")  # fmt: skip
    return ids


def _encoded(vector: np.ndarray, body: EmbeddingBody) -> list[float] | str:
    if body.encoding_format == "base64":
        return base64.b64encode(vector.astype("<f4").tobytes()).decode()
    return vector.tolist()
