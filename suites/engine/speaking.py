"""A model whose next answer is given to it, with tools and thoughts in its template."""

from __future__ import annotations

from typing import Any

import openai

from tokenline.client import Model

TEMPLATE = (
    "{% if tools %}<|im_start|>system\nYou may call, within <tool_call></tool_call>:"
    "{% for tool in tools %}\n{{ tool | tojson }}{% endfor %}<|im_end|>\n{% endif %}"
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content.split('</think>')[-1] }}"
    "{% for call in message.tool_calls or [] %}<tool_call>\n{{ call.function | tojson }}\n</tool_call>{% endfor %}"
    "<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% if think %}<think>\n{% endif %}{% endif %}"
)
ASK: list[Any] = [{"role": "user", "content": "Weather in Oslo?"}]
WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "é <b>",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city"],
        },
    },
}
STOP: dict[str, Any] = {"type": "function", "function": {"name": "stop"}}
TOOLS = [WEATHER, STOP]
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo {}}", "days": 2}}\n</tool_call>'
ARGUMENTS = '{"city": "Oslo {}}", "days": 2}'

# What a model writes, and what its message is then: content, reasoning, calls.
SAID: dict[str, tuple[str, str | None, str | None, list[tuple[str, str]]]] = {
    "plain": ("It rains. 🎉", "It rains. 🎉", None, []),
    "call": (CALL, None, None, [("weather", ARGUMENTS)]),
    "text and call": (f"Let me look.\n{CALL}", "Let me look.", None, [("weather", ARGUMENTS)]),
    "parallel": (f'{CALL}\n<tool_call>{{"name":"stop","arguments":{{}}}}</tool_call>', None, None,
                 [("weather", ARGUMENTS), ("stop", "{}")]),
    "malformed": ('<tool_call>\n{"name": "weather", "arguments": }\n</tool_call>',
                  '<tool_call>\n{"name": "weather", "arguments": }\n</tool_call>', None, []),
    "unknown": ('<tool_call>{"name": "rm", "arguments": {}}</tool_call>',
                '<tool_call>{"name": "rm", "arguments": {}}</tool_call>', None, []),
    "thoughts": ("<think>\nRain? 日本\n</think>\n\nYes.", "Yes.", "Rain? 日本", []),
    "thoughts and call": (f"<think>look</think>\n\n{CALL}", None, "look", [("weather", ARGUMENTS)]),
    "unclosed": ("<think>and on and on", "", "and on and on", []),
}  # fmt: skip


class Speaking:
    """A model whose next answer is given to it."""

    def __init__(self, model: Model, url: str) -> None:
        self.model = model
        self.client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)

    def will_say(self, text: str, messages: list[Any], **asked: Any) -> None:
        prompt = self.model.generate(messages=messages, max_tokens=0, **asked)["usage"]["prompt_tokens"]
        # Marks that are special tokens are written as these.
        script = self.model.tokenizer.encode(text, parse_special=True, add_bos=False)
        script += self.model.tokenizer.eos_token_ids
        network = self.model._engine._model
        self.model._worker.call(lambda: network.say(prompt, script)).result()
        self.model.reset_cache()


def message_of(content: str | None, reasoning: str | None, calls: list[tuple[str, str]]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if reasoning is not None:
        message["reasoning_content"] = reasoning
    if calls:
        message["tool_calls"] = [
            {"type": "function", "function": {"name": name, "arguments": arguments}}
            for name, arguments in calls
        ]
    return message


def without_ids(message: dict[str, Any]) -> dict[str, Any]:
    """As clients see it: what is null or empty is not there, and ids are ids."""
    calls = [dict(call) for call in message.get("tool_calls") or ()]
    ids = [call.pop("id") for call in calls]
    assert len(set(ids)) == len(ids)
    assert all(id.startswith("call_") for id in ids)
    for call in calls:
        call.pop("index", None)
        call["function"] = {name: call["function"][name] for name in ("name", "arguments")}
    kept = {
        name: value for name, value in message.items() if name in ("role", "content", "reasoning_content")
    }
    kept = {name: value for name, value in kept.items() if value is not None or name == "content"}
    return {**kept, "tool_calls": calls} if calls else kept
