"""`billhook send`: play the service, and post a signed event."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, BinaryIO

import click

from billhook.cli.answers import report
from billhook.cli.output import printable, progress
from billhook.cli.params import Amount, as_json
from billhook.cli.target import signer_of, target_of
from billhook.errors import ConfigError

if TYPE_CHECKING:
    from billhook.signing import Scheme

__all__ = ["send"]

_SCHEMES = ("standard-webhooks", "timestamped-hmac", "timestamped-rsa", "body-hmac")


@click.command()
@click.argument("event_type", metavar="TYPE")
@click.option(
    "--to", "url", metavar="URL",
    help="Where deliveries are taken. Default: where `billhook serve` takes them; the Flask app itself.",
)  # fmt: skip
@click.option(
    "--source",
    metavar="NAME",
    help="In a Flask app: the source to play. Default: the default one, or the only one.",
)
@click.option(
    "--set", "changes", multiple=True, metavar="PATH=VALUE",
    help="Change a field, by its name on the wire; VALUE is JSON, or else text, as it always is where the "
    "field is a text. May be repeated.",
)  # fmt: skip
@click.option(
    "--file", "file", type=click.File("rb"), help="Send this body, as it is, instead of a sample; - is stdin."
)
@click.option(
    "--secret-file", type=click.Path(exists=True, dir_okay=False),
    help="A file with the signing secret (for timestamped-rsa: the private key). Default: BILLHOOK_SECRETS.",
)  # fmt: skip
@click.option("--count", type=click.IntRange(1, 1_000_000), default=1, show_default=True, help="How many.")
@click.option("--scheme", type=click.Choice(_SCHEMES), help="How to sign. Default: BILLHOOK_SIGNATURE.")
@click.option(
    "--id", "message_id", help="The delivery's id, where the scheme has one; the default is random."
)
@click.option("--timeout", type=Amount(0.1, 600), default=10.0, show_default=True, help="Seconds to wait.")
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
    """Sign a sample event of TYPE and post it, as the service would. Exit code 1 unless every answer is 200.

    The secret is the newest of BILLHOOK_SECRETS or BILLHOOK_SECRETS_FILE, or comes from --secret-file; never
    from the command line, which other users of the machine can read. An unknown TYPE needs --file.

    \b
    Examples:
      billhook send InvoiceApproved
      billhook send PaymentFailed --set amount=12.50 --set currency=EUR --to http://127.0.0.1:8001/hooks
      echo '{}' | billhook send BrandNew --file -
      flask --app myshop billhook send InvoiceApproved --source eu
    """
    from billhook.cli.wanted import body_of, remarks

    body = body_of(event_type, None if file is None else file.read(), changes)
    signer, secret = signer_of(url, source, scheme, secret_file)
    answers = []
    for remark in remarks(event_type, body, changes):
        click.echo(f"note: {printable(remark)}", err=True)
    place, posts = target_of(url, source, timeout)
    with posts as poster, progress("sending", count) as steps:
        for _ in range(count):
            headers = _headers(signer, secret, body, event_type, message_id)
            answers.append(poster.post(body, headers))
            steps.advance()
    report(answers, place, as_json)
    if any(answer.status != 200 for answer in answers):
        sys.exit(1)


def _headers(
    signer: Scheme, secret: str, body: bytes, event_type: str, message_id: str | None
) -> dict[str, str]:
    if not (event_type.isascii() and event_type.isprintable()):
        raise ConfigError("TYPE goes into a header: it must be printable ASCII")
    try:
        headers = signer.sign(
            body, secret, event_type=event_type, now=datetime.now(UTC), message_id=message_id
        )
    except ValueError as error:
        raise ConfigError(f"--id cannot be used: {error}") from None
    return {"X-Webhook-Type": event_type, **headers}
