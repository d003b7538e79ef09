"""Draw the pictures of the pages from the committed measurements.

    python tests/bench/plot.py

figures/receiver.json, of receiver.py: one panel for each number of connections, with the throughput of each
receiver as a share of the bare view's, taken within a round, and the p99 beside it. figures/workers.json, of
engines.py: the runs a second of each worker. A bar reaches to the median, and a line from the least to the
most. The colours follow the reader's light or dark theme.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable, Iterator
from html import escape
from pathlib import Path
from typing import Any

from receiver import BARE, Figures

FIGURES = Path(__file__).parent / "figures"
WIDTH, ROW, BAR, LABEL, VALUE = 760, 26, 14, 210, 170
STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1f2328 } .small { font-size: 11px; fill: #59636e }
.title { font-weight: 600 } .bar { fill: #4c78a8 } .other { fill: #9da7b3 } .spread { stroke: #1f2328 }
.axis { stroke: #d1d9e0 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .small { fill: #9198a1 } .bar { fill: #6ea8dc } .other { fill: #59636e }
  .spread { stroke: #e6edf3 } .axis { stroke: #3d444d }
}
"""


def draw(results: dict[str, dict[str, list[Figures]]]) -> str:
    """Return the SVG of what `receiver.py --json` wrote."""
    most = max(max(_ratios(panel, name, "rate")) for panel in results.values() for name in panel)
    lines: list[str] = []
    top = 0
    for connections, panel in results.items():
        lines += _panel(connections, panel, top, (WIDTH - LABEL - VALUE) / most)
        top += ROW * (len(panel) + 2)
    return _picture(
        "Deliveries a second, as a share of those of a bare Flask view that keeps nothing", top, lines
    )


def draw_workers(results: dict[str, list[float]]) -> str:
    """Return the SVG of what `engines.py --json` wrote."""
    scale = (WIDTH - LABEL - VALUE) / max(map(max, results.values()))
    lines: list[str] = []
    for number, (name, rates) in enumerate(results.items()):
        middle = statistics.median(rates)
        told = f"{middle:,.0f} ({min(rates):,.0f} to {max(rates):,.0f}) runs/s"
        lines += _bar(name, ROW * number, rates, scale, told, own=name.startswith("billhook"))
    return _picture("Runs of a handler that does nothing, in one worker process", ROW * len(results), lines)


PICTURES: dict[str, Callable[[Any], str]] = {"receiver": draw, "workers": draw_workers}
"""How the figures of each name are drawn."""


def _picture(title: str, height: int, lines: Iterable[str]) -> str:
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
            f"<title>{escape(title)}</title>",
            f"<style>{STYLE}</style>",
            *lines,
            "</svg>\n",
        ]
    )


def _bar(name: str, y: int, values: list[float], scale: float, told: str, *, own: bool) -> Iterator[str]:
    """Yield the lines of one row: its name, a bar to the median, the spread, and what is told."""
    centre = y + ROW / 2
    yield f'<text x="0" y="{centre + 4}">{escape(name)}</text>'
    size = f'width="{statistics.median(values) * scale:.1f}" height="{BAR}"'
    yield f'<rect class="{"bar" if own else "other"}" x="{LABEL}" y="{centre - BAR / 2}" {size}/>'
    ends = [LABEL + one * scale for one in (min(values), max(values))]
    yield f'<line class="spread" x1="{ends[0]:.1f}" x2="{ends[1]:.1f}" y1="{centre}" y2="{centre}"/>'
    yield f'<text class="small" x="{WIDTH}" y="{centre + 4}" text-anchor="end">{escape(told)}</text>'


def _panel(connections: str, panel: dict[str, list[Figures]], top: int, scale: float) -> Iterator[str]:
    """Yield the lines of one panel; `scale` is the width of the bare view's bar."""
    bare, bottom = f"{LABEL + scale:.1f}", top + ROW * (len(panel) + 1)
    yield f'<text class="title" x="0" y="{top + 18}">{connections} connections</text>'
    yield f'<line class="axis" x1="{bare}" x2="{bare}" y1="{top + ROW}" y2="{bottom}"/>'
    for number, (name, rounds) in enumerate(panel.items(), 1):
        ratios = _ratios(panel, name, "rate")
        own = name.startswith(("standalone", "blueprint", "with"))
        middle = statistics.median(ratios)
        p99 = statistics.median(one["p99_ms"] for one in rounds)
        told = f"{middle:.2f} ({min(ratios):.2f} to {max(ratios):.2f}), p99 {p99:,.0f} ms"
        yield from _bar(name, top + ROW * number, ratios, scale, told, own=own)


def _ratios(panel: dict[str, list[Figures]], name: str, key: str) -> list[float]:
    return [ours[key] / bare[key] for ours, bare in zip(panel[name], panel[BARE], strict=True)]


if __name__ == "__main__":
    for picture, drawing in PICTURES.items():
        figures = json.loads((FIGURES / f"{picture}.json").read_text())
        (FIGURES / f"{picture}.svg").write_text(drawing(figures))
