"""How pages show text, times, numbers, JSON and tracebacks.

Text may come from outside, so nothing in it is invisible. Pygments highlights: it writes <span class="…">,
and the style sheet has the colours.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from functools import cache
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

from billhook.basics.printable import printable
from billhook.clock import format_ago, format_time

if TYPE_CHECKING:
    from pygments.lexer import Lexer

_KEPT = "\n\t"
_CODE = re.compile(r"`([^`]+)`")
_WORD_ENDS = re.compile(r"(?<=_)(?=[^_])|(?<=[a-z])(?=[A-Z])")
_LONGEST_PART = 24
_LONG_NAME = re.compile(rf"[\w.]{{{_LONGEST_PART + 1},}}")
_PART_ENDS = re.compile(r"(?<=[._])(?=[^\W_])")
_LONG = 1e15
"""Numbers from here on are written with an exponent."""
_DEEPEST = 20
"""The most levels of indentation: without a limit, a deep body would get a thousand times its size in
spaces."""
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{},:]|[^\s"\[\]{},:]+')
HIGHLIGHTED_CHARACTERS = 50_000
"""Longer texts are shown without colours: some 15 ms are spent on this many characters."""


def as_shown(value: Any) -> Any:
    r"""Return what an expression in a template is shown as: text with invisible characters as \u202e.

    For Jinja's `finalize`, so that no template can forget it. Markup and numbers stay as they are.
    """
    if value is None:
        return ""
    if hasattr(value, "__html__"):
        return value
    return printable(value, keep=_KEPT) if isinstance(value, str) else value


def show_invisible(text: object) -> Markup:
    r"""Return text from outside as HTML: isolated from the reading direction of what surrounds it.

    Each character that could not be seen is written as \x1b in an element of its own, so that it cannot be
    mistaken for a backslash that was sent. A line may end within a long name, behind a dot or an underscore.
    """
    shown = Markup("").join(
        Markup(_LONG_NAME.sub(_with_breaks, escape("".join(characters))))  # noqa: S704 - escaped
        if visible
        else Markup('<span class="invisible">{}</span>').format(printable("".join(characters)))
        for visible, characters in groupby(str(text), lambda each: printable(each, _KEPT) == each)
    )
    return Markup("<bdi>{}</bdi>").format(shown)


def _with_breaks(name: re.Match[str]) -> str:
    """Return a name of escaped text with the places where a line may end; no entity has a dot in it."""
    return _PART_ENDS.sub("<wbr>", name[0])


def show_name(text: object) -> Markup:
    """Return a dotted name as `show_invisible` does; a line may end behind each of its dots.

    In a part that is longer than a line of a phone it may also end behind underscores, and between words that
    begin with a capital.
    """
    parts = re.split(r"(?<=\.)", str(text))
    words = (_WORD_ENDS.split(part) if len(part) > _LONGEST_PART else [part] for part in parts)
    shown = map(show_invisible, chain.from_iterable(words))
    return Markup('<span class="name">{}</span>').format(Markup("<wbr>").join(shown))


def show_code(text: object) -> Markup:
    """Return text from outside as `show_invisible` does; what stands between backticks as code."""
    return Markup("").join(
        Markup("<code>{}</code>").format(show_invisible(part)) if number % 2 else show_invisible(part)
        for number, part in enumerate(_CODE.split(str(text)))
        if part
    )


def render_markdown(text: str) -> Markup:
    """Return Markdown as HTML. What it has of HTML is text, and so are links to what may run a script."""
    from markdown_it import MarkdownIt  # late, as Pygments below

    rendered = MarkdownIt("commonmark", {"html": False}).render(printable(text, keep=_KEPT))
    return Markup(rendered)  # noqa: S704 - it has no HTML but its own


def time_element(moment: datetime | None) -> Markup:
    """Return a time in UTC as a <time> element; empty for None."""
    if moment is None:
        return Markup("")
    at = moment.astimezone(UTC)
    exact = at.isoformat(timespec="milliseconds")
    return Markup('<time datetime="{}" title="{}">{}</time>').format(exact, exact, format_time(at))


def age_element(moment: datetime, now: datetime) -> Markup:
    """Return how long ago a time is as a <time> element, and after it the time, with the day if not today."""
    at = moment.astimezone(UTC)
    exact = "%H:%M:%S" if at.date() == now.astimezone(UTC).date() else "%m-%d %H:%M"
    parts = (at.isoformat(timespec="milliseconds"), format_time(at), format_ago(at, now), format(at, exact))
    return Markup('<time datetime="{}" title="{} UTC">{}</time> <small>{}</small>').format(*parts)


def format_number(number: float) -> str:
    """Return a number with its digits in groups of three: `1,234,567`, with at most two decimal places."""
    return f"{number:,.2f}".rstrip("0").rstrip(".") if abs(number) < _LONG else f"{number:.3g}"


def format_bytes(number: int) -> str:
    """Return a size as `12 bytes`, `3.4 KB` or `1.2 MB`, of 1,000 each."""
    for size, unit in ((1_000_000, "MB"), (1_000, "KB")):
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return "1 byte" if number == 1 else f"{number} bytes"


def indented_json(text: str) -> str:
    """Return JSON with a line for each value and every token as sent; text that is not JSON is unchanged."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return text
    parts: list[str] = []
    depth, before = 0, ""
    for part in _TOKEN.findall(text):
        if part in "]}":
            depth -= 1
            if before not in "[{":
                parts.append("\n" + "  " * min(depth, _DEEPEST))
        elif before and before in "[{,":
            parts.append("\n" + "  " * min(depth, _DEEPEST))
        parts.append(": " if part == ":" else part)
        if part in "[{":
            depth += 1
        before = part
    return "".join(parts)


def highlight(text: str, language: str) -> Markup:
    """Return JSON (or what was meant to be) or a Python traceback as HTML for a <pre>.

    `language` is `json` or `traceback`.
    """
    shown = printable(text, keep="\n\t")
    if len(shown) > HIGHLIGHTED_CHARACTERS:
        return escape(shown)
    import pygments  # late: an app whose pages are not looked at needs none of it

    return Markup(pygments.highlight(shown, *_tools(language)))  # noqa: S704 - Pygments escapes it


@cache
def _tools(language: str) -> tuple[Lexer, Any]:
    from pygments.formatters.html import HtmlFormatter
    from pygments.lexers.data import JsonLexer
    from pygments.lexers.python import PythonTracebackLexer

    # As it was sent: no empty line is dropped, and none is added.
    lexers = {"json": JsonLexer, "traceback": PythonTracebackLexer}
    return lexers[language](stripnl=False, ensurenl=False), HtmlFormatter(nowrap=True, classprefix="hl-")
