"""How far two forwards lie apart, from the embedding to the head, as inline SVG."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from paritygate.report.plots import WIDE

HEIGHT, TOP, BOTTOM, LEFT, RIGHT = 170, 12, 26, 64, 12
LEAST = 1e-12  # drawn at the bottom: no difference at all


def _power(value: float | None) -> float:
    # What is not finite came through JSON as None; it is beyond everything.
    return math.log10(max(value, LEAST)) if value is not None and math.isfinite(value) else math.inf


def depth_plot(taps: Sequence[Mapping[str, Any]], first: str | None) -> str:
    """A bar for every array, in the network's order: its largest |Δ|, logarithmic, and what is allowed as a line."""
    if not taps:
        return ""
    powers = [_power(tap["max_abs"]) for tap in taps] + [_power(tap["allowed"]) for tap in taps]
    finite = [power for power in powers if math.isfinite(power)]
    low = math.floor(min(finite, default=0.0))
    high = max(math.ceil(max(finite, default=1.0)), low + 1)
    step = (WIDE - LEFT - RIGHT) / len(taps)

    def height(power: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (high - min(max(power, low), high)) / (high - low)

    floor = HEIGHT - BOTTOM
    parts = [f'<svg viewBox="0 0 {WIDE} {HEIGHT}" role="img" aria-label="largest difference of each array">']
    for power in range(low, high + 1, max(1, (high - low) // 4)):
        y = height(power)
        text = "0" if power <= math.log10(LEAST) else f"1e{power}"
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDE - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="axis" x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{text}</text>')
    allowed = []
    for number, tap in enumerate(taps):
        x, y = LEFT + step * number, height(_power(tap["max_abs"]))
        style = "tap above" if tap["above"] else "tap"
        name = escape(f"{tap['name']}: {tap['max_abs']} ({tap['allowed']} allowed)")
        width = max(step - 1, 0.8)
        parts.append(
            f'<rect class="{style}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{max(floor - y, 1):.1f}">'
            f"<title>{name}</title></rect>"
        )
        level = height(_power(tap["allowed"]))
        allowed.append(f"{x:.1f},{level:.1f} {x + step:.1f},{level:.1f}")
        if first is not None and tap["name"] == first:
            anchor = "start" if number < len(taps) / 2 else "end"
            parts.append(
                f'<text class="label first" x="{x:.1f}" y="{HEIGHT - 8}" text-anchor="{anchor}">{escape(first)}</text>'
            )
    parts.append(f'<polyline class="allowed" points="{" ".join(allowed)}"/>')
    return "".join(parts) + "</svg>"
