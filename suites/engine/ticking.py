"""A scheduler that a test turns by hand, over a toy that says one letter for ever."""

from __future__ import annotations

from typing import Any

from toy_models import Scripted, scripted_tokenizer

from tokenline.budget import ByteBudget
from tokenline.checkpoint.adapters import Adapter, Adapters
from tokenline.decode.prefill_plan import PrefillPlan
from tokenline.decode.sampling import RowParameters
from tokenline.engine import Engine
from tokenline.ops import open_ops
from tokenline.prompt_cache import PromptCache
from tokenline.request import Request
from tokenline.result import result_of
from tokenline.row import Event, Row
from tokenline.scheduler import Limits, Scheduler

OPS = open_ops("torch", "float32", 1)
TOKENIZER = scripted_tokenizer(["a", "b"])
PLACE = 8  # bytes that one token takes in the toy's only layer: a key and a value, float32
UNBOUNDED = 1 << 62
CONTEXT = 1000
LANES = ("a", "b", "one", "two", "adapter", "other")


class Ticking:
    """`budget` is in tokens' places."""

    def __init__(self, *, budget: int = 1 << 20, **limits: int) -> None:
        network = Scripted(OPS, 3, 1, [])
        # Lanes are adapters; these change nothing.
        adapters = Adapters({lane: Adapter({}, lane) for lane in LANES})
        self.engine = Engine(OPS, network, PromptCache(0), "toy", adapters=adapters)
        self.budget = ByteBudget.of(OPS, network, budget * PLACE)
        self.scheduler = Scheduler(self.engine, self.budget, Limits(**{"parallel": 4, **limits}))
        self.admitted: list[Row] = []
        self.read: list[Row] = []  # whose piece each prefill was
        opened, prefilled = self.engine.open, self.engine.prefill

        def open_row(row: Row) -> None:
            self.admitted.append(row)
            opened(row)

        def prefill(row: Row) -> bool:
            self.read.append(row)
            return prefilled(row)

        self.engine.open, self.engine.prefill = open_row, prefill  # type: ignore[method-assign]

    def submit(
        self, prompt: int = 3, max_tokens: int | None = 4, *, lane: str = "", emit: Any = None, **asked: Any
    ) -> Row:
        row = row_of(prompt, max_tokens, lane=lane, emit=emit, **asked)
        self.scheduler.submit(row)
        return row

    def tick(self, times: int = 1) -> None:
        for _ in range(times):
            self.scheduler.tick()

    def run(self) -> None:
        for _ in range(5000):
            if self.scheduler.idle:
                return
            self.tick()
        raise AssertionError("rows did not end")


def row_of(
    prompt: int = 3, max_tokens: int | None = 4, *, lane: str = "", emit: Any = None, **asked: Any
) -> Row:
    request = Request(prompt_token_ids=(0,) * prompt, max_tokens=max_tokens, **asked)
    told: list[Event] = []
    row = Row(
        request=request,
        prompt=[0] * prompt,
        plan=PrefillPlan.of(prompt),
        parameters=RowParameters(request.sampling, 0, None),
        tokenizer=TOKENIZER,
        max_tokens=UNBOUNDED if max_tokens is None else max_tokens,
        context_length=CONTEXT,
        free_unused=lambda: None,
        emit=emit or told.append,
        finished=lambda row: result_of(row, {}),
    )
    row.lane = lane
    return row
