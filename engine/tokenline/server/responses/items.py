"""The output items of a response, and the events with which each comes."""

from __future__ import annotations

from collections.abc import Iterator

from tokenline.server.blocks import Block, Step
from tokenline.server.reply import Json

_PREFIX = {"text": "msg", "thinking": "rs", "call": "fc"}


def item_id(response_id: str, block: Block) -> str:
    return f"{_PREFIX[block.kind]}_{response_id.partition('_')[2]}{block.index}"


def item_of(response_id: str, block: Block, status: str) -> Json:
    """The block as an item, as far as it has come; one that has only begun has no parts yet."""
    shared = {"id": item_id(response_id, block), "status": status}
    begun = status == "in_progress"
    match block.kind:
        case "call":
            called = {"call_id": block.id, "name": block.name, "arguments": block.text}
            return {"type": "function_call", **shared, **called}
        case "thinking":
            return {"type": "reasoning", **shared, "summary": [], "content": [] if begun else [_part(block)]}
        case _:
            content = [] if begun else [_part(block)]
            return {"type": "message", **shared, "role": "assistant", "content": content}


def events_of(response_id: str, step: Step, status: str) -> Iterator[Json]:
    """What a step of a block is in events; `status` is what an item that ends here has come to."""
    block = step.block
    at = {"output_index": block.index}
    inside = {"item_id": item_id(response_id, block), **at}
    part = {**inside, "content_index": 0}
    spoken = "response.output_text" if block.kind == "text" else "response.reasoning_text"
    logprobs: Json = {"logprobs": []} if block.kind == "text" else {}
    match step.what, block.kind:
        case "open", _:
            begun = Block(block.kind, block.index, block.id, block.name)
            item = item_of(response_id, begun, "in_progress")
            yield {"type": "response.output_item.added", **at, "item": item}
            if block.kind != "call":
                yield {"type": "response.content_part.added", **part, "part": _part(begun)}
        case "add", "call":
            yield {"type": "response.function_call_arguments.delta", **inside, "delta": step.text}
        case "add", _:
            yield {"type": f"{spoken}.delta", **part, "delta": step.text, **logprobs}
        case "close", kind:
            if kind == "call":
                done = {"name": block.name, "arguments": block.text}
                yield {"type": "response.function_call_arguments.done", **inside, **done}
            else:
                yield {"type": f"{spoken}.done", **part, "text": block.text, **logprobs}
                yield {"type": "response.content_part.done", **part, "part": _part(block)}
            item = item_of(response_id, block, status)
            yield {"type": "response.output_item.done", **at, "item": item}


def _part(block: Block) -> Json:
    if block.kind == "thinking":
        return {"type": "reasoning_text", "text": block.text}
    return {"type": "output_text", "text": block.text, "annotations": [], "logprobs": []}
