"""The terminal: whatever an engine said, it is shown, and steers nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import rich.console
from rich.console import ConsoleOptions, RenderableType
from rich.segment import Segment

from paritygate.shown import shown


class Console(rich.console.Console):
    """rich's console, over text whose control characters are written out."""

    def print(self, *objects: Any, **how: Any) -> None:
        # Here first, because rich drops some of them from what it makes of a string.
        super().print(*(shown(item) if isinstance(item, str) else item for item in objects), **how)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=shown(segment.text))
