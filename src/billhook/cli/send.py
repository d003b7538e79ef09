"""`billhook send`: sign a sample event and post it, as the service does; print the answers."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, BinaryIO
from urllib.parse import urlsplit

import click

from billhook.cli.output import print_json, print_table, printable, progress
from billhook.cli.params import FiniteNumber, as_json
from billhook.cli.posting import HttpReply, choose_signer, choose_target
from billhook.errors import ConfigError

if TYPE_CHECKING:
    from billhook.signing import Scheme

__all__ = ["send"]


_SCHEMES = ("standard-webhooks", "timestamped-hmac", "timestamped-rsa", "body-hmac")


@click.command()
@click.argument("event_type", metavar="TYPE")
@click.option(
    "--to", "url", metavar="URL",
    help="The receiver's URL. Default: that of `billhook serve`; under `flask`, the app itself.",
)  # fmt: skip
@click.option(
    "--source",
    metavar="NAME",
    help="Under `flask`: the source to send as. Default: the default source, or the only one.",
)
@click.option(
    "--set", "changes", multiple=True, metavar="PATH=VALUE",
    help="Set a field of the body by its JSON name. VALUE is JSON or text; for a text field it is always "
    "text. May be repeated.",
)  # fmt: skip
@click.option(
    "--file",
    "file",
    type=click.File("rb"),
    help="Send this file unchanged instead of a sample; - reads stdin.",
)
@click.option(
    "--secret-file", type=click.Path(exists=True, dir_okay=False),
    help="A file with the signing secret (for timestamped-rsa: the private key). Default: BILLHOOK_SECRETS.",
)  # fmt: skip
@click.option(
    "--count", type=click.IntRange(1, 1_000_000), default=1, show_default=True, help="How many times to send."
)
@click.option(
    "--scheme", type=click.Choice(_SCHEMES), help="The signature scheme. Default: BILLHOOK_SIGNATURE."
)
@click.option("--id", "message_id", help="The delivery's id, if the scheme signs one. Default: random.")
@click.option(
    "--timeout",
    type=FiniteNumber(0.1, 600),
    default=10.0,
    show_default=True,
    help="Seconds to wait for an answer.",
)
@as_json
def send(
    event_type: str,
    url: str | None,
    source: str | None,
    changes: tuple[str, ...],
    file: BinaryIO | None,
    secret_file: str | None,
    count: int,
    scheme: str | None,
    message_id: str | None,
    timeout: float,
    as_json: bool,
) -> None:
    """Sign a sample event of TYPE and post it, as the service does. Exit code 1 unless every answer is 200.

    The secret is the first of BILLHOOK_SECRETS or BILLHOOK_SECRETS_FILE, or that of --secret-file. It cannot
    be an argument, because other users of the machine can read those. An unknown TYPE needs --file.

    \b
    Examples:
      billhook send InvoiceApproved
      billhook send PaymentFailed --set amount=12.50 --set currency=EUR --to http://127.0.0.1:8001/hooks
      echo '{}' | billhook send BrandNew --file -
      flask --app myshop billhook send InvoiceApproved --source eu
    """
    from billhook.cli.payload import build_payload, payload_warnings

    body = build_payload(event_type, None if file is None else file.read(), changes)
    signer, secret = choose_signer(url, source, scheme, secret_file)
    answers = []
    for remark in payload_warnings(event_type, body, changes):
        click.echo(f"note: {printable(remark)}", err=True)
    place, posts = choose_target(url, source, timeout)
    with posts as poster, progress("sending", count) as steps:
        for _ in range(count):
            headers = _headers(signer, secret, body, event_type, message_id)
            answers.append(poster.post(body, headers))
            steps.advance()
    _report(answers, place, as_json)
    if any(answer.status != 200 for answer in answers):
        sys.exit(1)


def _headers(
    signer: Scheme, secret: str, body: bytes, event_type: str, message_id: str | None
) -> dict[str, str]:
    if not (event_type.isascii() and event_type.isprintable()):
        raise ConfigError(f"TYPE is {event_type!r}: it is sent in a header, so it must be printable ASCII")
    try:
        headers = signer.sign(
            body, secret, event_type=event_type, now=datetime.now(UTC), message_id=message_id
        )
    except ValueError as error:
        raise ConfigError(f"--id is {message_id!r}, which cannot be signed: {error}") from None
    return {"X-Webhook-Type": event_type, **headers}


_NO_RECEIVER = "no receiver at this path; the default path is /webhooks/billing"
_OTHER_ANSWERED = "the app answered, not billhook; run `flask --app … billhook check` to see why"


def _report(answers: Sequence[HttpReply], url: str, as_json: bool) -> None:
    """Print one answer with its body, or several as counts and times."""
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


def _text(answer: HttpReply, url: str) -> str:
    """Return the body of a receiver's answer; in place of any other server's page, what it means."""
    text = answer.body.strip()
    if answer.status is None:
        text = text if text.startswith("no answer") else f"no answer: {text}"
        if "refused" in text:
            text += f"; is the receiver running at {urlsplit(url).netloc}?"
    elif url.startswith("/") and answer.status >= 300 and not _is_object(text):
        text = _OTHER_ANSWERED  # the path is one of billhook's in this app
    elif answer.status in (404, 405) and not _is_object(text):
        text = _NO_RECEIVER
    elif text.startswith("<"):
        text = "an HTML page, not a receiver's answer" if answer.status >= 500 else _NO_RECEIVER
    return text


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def _milliseconds(ordered: list[float], share: float) -> float:
    """Return the time in which this share of the answers arrived, in milliseconds."""
    return round(ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1000, 2)
