"""Highlight JSON and tracebacks: Pygments writes <span class="…">, and the style sheet has the colours."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

from billhook.printable import printable

if TYPE_CHECKING:
    from pygments.lexer import Lexer

__all__ = ["HIGHLIGHTED_CHARACTERS", "highlight_json", "highlight_traceback"]

HIGHLIGHTED_CHARACTERS = 50_000
"""Longer texts are shown without colours: some 15 ms are spent on this many characters."""


def highlight_json(text: str) -> Markup:
    """Return JSON, or what was meant to be, as HTML for a <pre>."""
    return _highlight(text, "json")


def highlight_traceback(text: str) -> Markup:
    """Return a Python traceback as HTML for a <pre>."""
    return _highlight(text, "traceback")


def _highlight(text: str, language: str) -> Markup:
    shown = printable(text, keep="\n\t")
    if len(shown) > HIGHLIGHTED_CHARACTERS:
        return escape(shown)
    from pygments import highlight  # late: an app whose pages are not looked at needs none of it

    lexer, formatter = _tools(language)
    return Markup(highlight(shown, lexer, formatter))  # noqa: S704 - Pygments escapes what it is given


@cache
def _tools(language: str) -> tuple[Lexer, Any]:
    from pygments.formatters.html import HtmlFormatter
    from pygments.lexers.data import JsonLexer
    from pygments.lexers.python import PythonTracebackLexer

    # As it was sent: no empty line is dropped, and none is added.
    lexers = {"json": JsonLexer, "traceback": PythonTracebackLexer}
    return lexers[language](stripnl=False, ensurenl=False), HtmlFormatter(nowrap=True, classprefix="hl-")
