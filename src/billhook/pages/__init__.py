"""What all web pages have in common: layout, charts, highlighting, forms that are safe to send, headers."""

from __future__ import annotations

from billhook.pages.charts import (
    Bars,
    Lane,
    LaneChart,
    Mark,
    Series,
    Sparkline,
    bar_chart,
    lane_chart,
    sparkline,
)
from billhook.pages.pages import PageLink, Pages, Visitor
from billhook.pages.text import (
    format_bytes,
    format_time,
    highlight_json,
    highlight_traceback,
    show_code,
    show_invisible,
)

__all__ = [
    "Bars",
    "Lane",
    "LaneChart",
    "Mark",
    "PageLink",
    "Pages",
    "Series",
    "Sparkline",
    "Visitor",
    "bar_chart",
    "format_bytes",
    "format_time",
    "highlight_json",
    "highlight_traceback",
    "lane_chart",
    "show_code",
    "show_invisible",
    "sparkline",
]
