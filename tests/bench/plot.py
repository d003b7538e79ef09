"""Draw the measurements of receiver.py as an SVG.

    python tests/bench/plot.py receiver.json receiver.svg

One panel for each number of connections: the throughput of each receiver as a share of the bare view's, taken
within a round; a bar to the median and a line from the least to the most, with the p99 beside it. The colours
follow the reader's light or dark theme.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterator
from html import escape
from pathlib import Path

from receiver import BARE, Figures

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
    title = "Deliveries a second, as a share of those of a bare Flask view that keeps nothing"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top}" role="img">',
            f"<title>{escape(title)}</title>",
            f"<style>{STYLE}</style>",
            *lines,
            "</svg>\n",
        ]
    )


def _panel(connections: str, panel: dict[str, list[Figures]], top: int, scale: float) -> Iterator[str]:
    """Yield the lines of one panel; `scale` is the width of the bare view's bar."""
    bare, bottom = f"{LABEL + scale:.1f}", top + ROW * (len(panel) + 1)
    yield f'<text class="title" x="0" y="{top + 18}">{connections} connections</text>'
    yield f'<line class="axis" x1="{bare}" x2="{bare}" y1="{top + ROW}" y2="{bottom}"/>'
    for number, (name, rounds) in enumerate(panel.items(), 1):
        ratios = _ratios(panel, name, "rate")
        middle, y = statistics.median(ratios), top + ROW * number
        kind = "bar" if name.startswith(("standalone", "blueprint", "with")) else "other"
        centre = y + ROW / 2
        yield f'<text x="0" y="{centre + 4}">{escape(name)}</text>'
        size = f'width="{middle * scale:.1f}" height="{BAR}"'
        yield f'<rect class="{kind}" x="{LABEL}" y="{centre - BAR / 2}" {size}/>'
        ends = [LABEL + one * scale for one in (min(ratios), max(ratios))]
        yield f'<line class="spread" x1="{ends[0]:.1f}" x2="{ends[1]:.1f}" y1="{centre}" y2="{centre}"/>'
        p99 = statistics.median(one["p99_ms"] for one in rounds)
        text = f"{middle:.2f} ({min(ratios):.2f} to {max(ratios):.2f}), p99 {p99:,.0f} ms"
        yield f'<text class="small" x="{WIDTH}" y="{centre + 4}" text-anchor="end">{text}</text>'


def _ratios(panel: dict[str, list[Figures]], name: str, key: str) -> list[float]:
    return [ours[key] / bare[key] for ours, bare in zip(panel[name], panel[BARE], strict=True)]


if __name__ == "__main__":
    source, target = map(Path, sys.argv[1:])
    target.write_text(draw(json.loads(source.read_text())))
