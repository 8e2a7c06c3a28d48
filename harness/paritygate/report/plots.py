"""Plots as inline SVG: no script, no asset; colours come from the page, so they follow light and dark."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

# In the page's own pixels: a plot is drawn about as wide as its card, so that its text is as large as the page's.
WIDE, NARROW = 990, 450
HEIGHT = 230
LEFT, RIGHT, TOP, BOTTOM = 44, 110, 14, 28


@dataclass(frozen=True)
class Line:
    """A series: its name, its values in the plot's unit and its class in the page's style sheet."""

    name: str
    values: tuple[float, ...]
    style: str


def ticks(top: float, count: int = 4) -> list[float]:
    """Round steps from 0 that reach `top`."""
    if top <= 0:
        return [0.0]
    rough = top / count
    power = 10 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough)
    return [step * number for number in range(int(top / step + 1e-9) + 1)]


def line_plot(lines: Sequence[Line], *, unit: str, across: str, floor: float | None = None) -> str:
    """Values from 0 up, one series a line, each named at its end; `floor` is a dashed limit."""
    drawn = [line for line in lines if line.values]
    if not drawn:
        return ""
    every = sorted(value for line in drawn for value in line.values)
    # One hiccup must not flatten everything else: the axis ends above nearly all of them, and the rest is clipped.
    top = max(every[int(len(every) * 0.97)] * 1.25, floor or 0.0) * 1.05
    longest = max(len(line.values) for line in drawn)

    def place(index: int, value: float) -> str:
        x = LEFT + (WIDE - LEFT - RIGHT) * index / max(longest - 1, 1)
        return f"{x:.1f},{height(min(value, top)):.1f}"

    def height(value: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / top)

    parts = [f'<svg viewBox="0 0 {WIDE} {HEIGHT}" role="img" aria-label="{escape(across)}, {escape(unit)}">']
    for tick in ticks(top):
        y = height(tick)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDE - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="axis" x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{tick:g}</text>')
    parts.append(f'<text class="axis" x="{LEFT}" y="{HEIGHT - 8}">{escape(across)}, 1 to {longest}</text>')
    if floor is not None:
        y = height(floor)
        parts.append(f'<line class="floor" x1="{LEFT}" x2="{WIDE - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
    labels = [(line.values[-min(8, len(line.values)) :], line.name, line.style) for line in drawn]
    ends = [(sorted(tail)[len(tail) // 2], name, style) for tail, name, style in labels]
    if floor is not None:
        ends.append((floor, "memory limit", "floor-text"))
    for line in drawn:
        path = " ".join(place(index, value) for index, value in enumerate(line.values))
        parts.append(f'<polyline class="{line.style}" points="{path}"/>')
    used: list[float] = []
    for value, name, style in sorted(ends, key=lambda end: -end[0]):
        y = height(min(value, top)) + 4
        if used and y - used[-1] < 14:
            y = used[-1] + 14
        used.append(y)
        parts.append(f'<text class="label {style}" x="{WIDE - RIGHT + 8}" y="{y:.1f}">{escape(name)}</text>')
    return "".join(parts) + "</svg>"


def ratio_strip(pairs: Sequence[Sequence[float]], margin: float, width: int) -> str:
    """Each pair's time ratio to the base on one axis: left of 1 faster, right slower, the margin shaded."""
    ratios = [head / base for base, head in pairs if base > 0]
    if not ratios:
        return ""
    reach = max(0.12, margin * 1.6, *(abs(math.log(ratio)) * 1.15 for ratio in ratios))
    height = 64

    def place(ratio: float) -> float:
        return width / 2 + width / 2 * 0.94 * math.log(ratio) / reach

    parts = [
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="time ratio of each pair to the base">'
    ]
    edge = place(1 + margin)
    parts.append(f'<rect class="beyond" x="{edge:.1f}" y="6" width="{width - edge:.1f}" height="34"/>')
    parts.append(f'<line class="one" x1="{width / 2}" x2="{width / 2}" y1="4" y2="42"/>')
    for number, ratio in enumerate(ratios):
        parts.append(f'<circle class="pair" cx="{place(ratio):.1f}" cy="{14 + 18 * (number % 2)}" r="5"/>')
    centre = sorted(ratios)[len(ratios) // 2]
    parts.append(f'<text class="axis" x="{width / 2}" y="58" text-anchor="middle">as the base</text>')
    parts.append('<text class="axis" x="4" y="58">faster</text>')
    parts.append(f'<text class="axis" x="{width - 4}" y="58" text-anchor="end">slower than the margin</text>')
    parts.append(f"<title>{len(ratios)} pairs, median {centre:.3f}</title>")
    return "".join(parts) + "</svg>"


def bars(rows: Sequence[tuple[str, float, str]], unit: str) -> str:
    """Horizontal bars from 0, each with its name and value: (name, value, class)."""
    if not rows:
        return ""
    top = max(value for _, value, _ in rows) or 1.0
    height = 30 * len(rows) + 4
    parts = [f'<svg viewBox="0 0 {NARROW} {height}" role="img" aria-label="{escape(unit)}">']
    for number, (name, value, style) in enumerate(rows):
        y = 4 + 30 * number
        length = (NARROW - 190) * value / top
        parts.append(f'<text class="axis" x="84" y="{y + 15}" text-anchor="end">{escape(name)}</text>')
        parts.append(f'<rect class="bar {style}" x="94" y="{y}" width="{length:.1f}" height="22" rx="4"/>')
        parts.append(
            f'<text class="value" x="{94 + length + 8:.1f}" y="{y + 15}">{value:,.4g} {escape(unit)}</text>'
        )
    return "".join(parts) + "</svg>"
