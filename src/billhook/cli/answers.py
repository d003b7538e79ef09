"""What came back to `billhook send`, for people and for programs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from urllib.parse import urlsplit

import click

from billhook.cli.output import print_json, print_table, printable
from billhook.cli.post import Answer

__all__ = ["report"]

_NO_RECEIVER = "nothing takes deliveries at this path: the default is /webhooks/billing"
_OTHER_ANSWERED = "not from billhook: the app itself answered; `flask --app … billhook check` says why"


def report(answers: Sequence[Answer], url: str, as_json: bool) -> None:
    """Print one answer as it came, or many counted and timed."""
    seconds = sorted(answer.seconds for answer in answers)
    summary = {"p50_ms": _milliseconds(seconds, 0.5), "p99_ms": _milliseconds(seconds, 0.99)}
    if as_json:
        statuses = Counter(str(answer.status) for answer in answers)
        facts: dict[str, object] = {
            "sent": len(answers),
            "statuses": dict(sorted(statuses.items())),
            **summary,
        }
        if len(answers) == 1:
            facts["body"] = answers[0].body
        print_json(facts)
        return
    if len(answers) == 1:
        status = answers[0].status
        text = printable(_text(answers[0], url))
        click.echo(f"{text if status is None else f'{status} {text}'} ({seconds[0] * 1000:.0f} ms)")
        return
    counted = Counter((answer.status, _text(answer, url)[:200]) for answer in answers)
    rows = [
        ("none" if status is None else status, text, number)
        for (status, text), number in counted.most_common()
    ]
    print_table("", ("status", "answer", "count"), rows)
    click.echo(f"{len(answers)} sent, p50 {summary['p50_ms']} ms, p99 {summary['p99_ms']} ms")


def _text(answer: Answer, url: str) -> str:
    """What a receiver of ours said; of anybody else's page, only that it is one."""
    text = answer.body.strip()
    if answer.status is None:
        text = text if text.startswith("no answer") else f"no answer: {text}"
        if "refused" in text:
            text += f"; is the receiver running at {urlsplit(url).netloc}?"
    elif url.startswith("/") and answer.status >= 300 and not _is_object(text):
        text = _OTHER_ANSWERED  # it went to a path that billhook takes in that app
    elif answer.status in (404, 405) and not _is_object(text):
        text = _NO_RECEIVER
    elif text.startswith("<"):
        text = "a page, and not the answer of a receiver" if answer.status >= 500 else _NO_RECEIVER
    return text


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def _milliseconds(ordered: list[float], share: float) -> float:
    """The time within which this share of the answers came."""
    return round(ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1000, 2)
