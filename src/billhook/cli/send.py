"""`billhook send`: sign a sample event and post it, as the service does; targets and signers of commands."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, BinaryIO, cast
from urllib.parse import SplitResult, urlsplit

import click

from billhook.basics.printable import first_line
from billhook.cli.context import (
    handlers_argument,
    import_handlers,
    load_settings,
    say_missing_worker,
    user_app,
)
from billhook.cli.events import event_class, sample_body, suggest
from billhook.cli.output import print_json, print_table, printable, progress, say
from billhook.cli.params import (
    DEFAULT_BIND,
    SECRET_FILE,
    FiniteNumber,
    as_json,
    integer,
    option,
    parse_http_url,
)
from billhook.doctor.deliveries import TEST_USER_AGENT
from billhook.errors import BillhookError, ConfigError, InvalidJSON, PayloadError
from billhook.errors.program import in_program, no_variables
from billhook.events import EVENT_TYPES
from billhook.events.inspection import event_json_schema, schema_fields
from billhook.events.samples import in_agreement
from billhook.events.type_field import parse_unread, with_type
from billhook.extension import configured_scheme, get_state
from billhook.fields import strict_json
from billhook.fields.model import describe_details
from billhook.posting import AppPoster, HttpPoster, HttpReply, sign
from billhook.receiver.blueprint import find_route, host_of
from billhook.settings import Settings
from billhook.signing.schemes import SCHEMES
from billhook.signing.source import DEFAULT_SOURCE

_INDEX = re.compile(r"\.[0-9]+(?=\.|$)")
"""The index of a list item in a path: `.0` in `lines.0.amount`."""


FILE_TO_SIGN_WITH = (
    "A file with the signing secret (for timestamped-rsa: the private key). Default: BILLHOOK_SECRETS"
)
SCHEME = option("--scheme", "The signature scheme. Default: BILLHOOK_SIGNATURE.", click.Choice([*SCHEMES]))
TIMEOUT = option("--timeout", "Seconds to wait for an answer.", FiniteNumber(0.1, 600), default=10.0)


def parse_target(url: str) -> SplitResult:
    """Return the parts of --to. Raises ConfigError, which repeats none of it: no password."""
    parts = parse_http_url("--to", url)
    if "@" in parts.netloc:
        raise ConfigError(
            "--to has a user name in it: leave it out, a webhook is authenticated by its signature alone"
        )
    return parts


def print_answers(answers: Counter[tuple[int | None, str]]) -> None:
    """Print how often each answer was given, the most frequent first."""
    rows = [
        ("none" if status is None else status, text, number)
        for (status, text), number in answers.most_common()
    ]
    if rows:
        print_table(("status", "answer", "count"), rows)


@contextmanager
def open_target(
    url: str | None, source: str | None, timeout_seconds: float
) -> Iterator[tuple[str, HttpPoster | AppPoster]]:
    """Give the target's name and its poster. Without a URL or an app it is where `serve` listens."""
    app = user_app()
    if url is None and app is not None:
        route = find_route(app, source)
        path = route.path
        say(f"note: posting to the app itself, at {path}; use --to URL to post to a server")
        # The process of a command ends soon: handlers that it began would be interrupted.
        with get_state(app).engine_disabled():
            yield path, AppPoster(app, path, host_of(app, route))
        return
    url = url or f"http://{DEFAULT_BIND}/{load_settings().url_prefix.strip('/')}"
    with HttpPoster(parse_target(url), timeout_seconds) as poster:
        yield url, poster


def signing_settings(scheme: str | None = None) -> Settings:
    """Return the options in force, with a `scheme` that the command names; for its signatures."""
    # Replay protection is the receiver's duty: a sender may use a scheme that signs no time.
    settings = replace(load_settings(), replay_protection="dedupe-only")
    return settings if scheme is None else replace(settings, signature=scheme)


def choose_signer(
    url: str | None, source: str | None, scheme: str | None, secret_file: str | None
) -> tuple[Callable[..., dict[str, str]], str | None]:
    """Return what signs as the options, or a source of the app, and the field of the body that has the type.

    The field is None where a header has it. Raises ConfigError.
    """
    app, settings = user_app(), signing_settings(scheme)
    if app is None and source not in (None, DEFAULT_SOURCE):
        raise ConfigError(
            f"there is no source {source!r} here: other sources than the default belong to a Flask app, "
            f"so run `flask --app … billhook send --source {source}`"
        )
    own = None if app is None else find_route(app, source, url).source
    chosen = own.scheme if own is not None and scheme is None else configured_scheme(settings)
    secrets: Sequence[Any] = (
        settings.read_secrets(secret_file) if own is None or secret_file is not None else own.secret_list
    )
    # The first is the newest: with two of them, a rotation is under way, and receivers know both.
    if not secrets:
        if path := secret_file or settings.secrets_file:
            raise ConfigError(f"no secret to sign with: {path!r} holds none, write it into the file")
        raise ConfigError(
            "no secret to sign with: set BILLHOOK_SECRETS_FILE or BILLHOOK_SECRETS, or give --secret-file"
            f"{no_variables()}"
        )
    if not isinstance(secrets[0], str):
        raise ConfigError("this source has only public keys: give the private key with --secret-file")
    secret, named = secrets[0], own or settings

    # No partial: a report of an error has the values of variables, and the text of a partial the secret.
    def signed(*delivery: Any) -> dict[str, str]:
        return sign(chosen, secret, *delivery, type_header=named.type_header)

    return signed, named.type_field


@click.command()
@click.argument("event_type", metavar="TYPE")
@handlers_argument
@option(
    "--to URL url", "The receiver's URL. Default: that of `billhook serve`; under `flask`, the app itself."
)
@option(
    "--source NAME", "Under `flask`: the source to send as. Default: the default source, or the only one."
)
@option(
    "--set PATH=VALUE changes",
    "Set a field of the body by its JSON name. VALUE is JSON or text; for a text field it is always "
    "text. May be repeated.",
    click.STRING,
    multiple=True,
)
@option("--file", "Send this file unchanged instead of a sample; - reads stdin.", click.File("rb"))
@option("--secret-file", f"{FILE_TO_SIGN_WITH}.", SECRET_FILE)
@integer("--count", 1, 1_000_000, 1, "How many times to send.")
@SCHEME
@option("--id message_id", "The delivery's id, if the scheme signs one. Default: random.")
@TIMEOUT
@as_json
def send(
    event_type: str,
    handlers: Sequence[str],
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
    be an argument, because other users of the machine can read those. A TYPE of your own is declared in
    HANDLERS, by default in BILLHOOK_HANDLERS; one that is declared nowhere needs --file. Where the receiver
    reads the type in the body, a sample has it there, and a file has to.

    \b
    Examples:
      billhook send InvoiceApproved
      billhook send PaymentFailed --set amount=12.50 --set currency=EUR --to http://127.0.0.1:8001/hooks
      billhook send BrandNew own.py
      echo '{}' | billhook send Undeclared --file -
      flask --app myshop billhook send InvoiceApproved --source eu
    """
    if event_type not in EVENT_TYPES:
        import_handlers(handlers)
    if not (event_type.isascii() and event_type.isprintable()):
        raise ConfigError(f"TYPE is {event_type!r}: it is sent in a header, so it must be printable ASCII")
    body, paths = _build_payload(event_type, None if file is None else file.read(), changes)
    signed, type_field = choose_signer(url, source, scheme, secret_file)
    if type_field is not None and file is None:
        body = with_type(body, type_field, event_type)
    answers = []
    # Only notes: an invalid body is often what the user wants to test the receiver with.
    for warning in _payload_warnings(event_type, body, paths, type_field):
        say(f"note: {printable(warning)}")
    with open_target(url, source, timeout) as (place, poster), progress("sending", count) as steps:
        for _ in range(count):
            # Signed anew each time: a random id makes each a new delivery; with --id they are duplicates.
            try:
                headers = signed("" if type_field else event_type, body, datetime.now(UTC), message_id)
            except ValueError as error:
                raise ConfigError(f"--id is {message_id!r}, which cannot be signed: {error}") from None
            answers.append(poster.post(body, {"User-Agent": TEST_USER_AGENT, **headers}))
            steps()
    _report(answers, place, as_json)
    app = user_app()
    if url is None and app is not None and any(answer.status == 200 for answer in answers):
        say_missing_worker(get_state(app).inbox, "note: stored, but not handled yet. ")
    if any(answer.status != 200 for answer in answers):
        sys.exit(1)


def _payload_warnings(
    event_type: str, body: bytes, paths: Iterable[str], type_field: str | None
) -> Iterator[str]:
    """Yield what the user may not have meant: fields that the type does not have, an invalid body or type."""
    kinds = _field_types(event_type)
    for path in paths:
        field = _INDEX.sub("[]", path).removesuffix("[]")
        if event_type in EVENT_TYPES and field not in kinds:
            hint = suggest(field, kinds, most=1)
            yield f"{event_type} has no field {path}" + (f"; {hint}" if hint else "")
    try:
        parse_unread(event_type, None, body)
    except PayloadError as error:
        yield f"this body is not a valid {event_type} ({describe_details(error.details) or error})"
    if type_field is not None:
        try:
            found = parse_unread("", type_field, body).type
        except PayloadError as error:
            yield str(error)
        else:
            if found != event_type:
                yield f"the type in the field {type_field!r} of the file is {found}"


def _field_types(event_type: str) -> Mapping[str, str]:
    """Return each field's type in words by its path; nothing for a type without a model."""
    model = EVENT_TYPES.get(event_type)
    rows = [] if model is None else schema_fields(event_json_schema(model))
    return {row["name"]: row["type"] for row in rows}


def _build_payload(event_type: str, content: bytes | None, changes: Sequence[str]) -> tuple[bytes, list[str]]:
    """Return `content`, or a sample of the type, with changes such as `a.b=1`; and the paths of the changes.

    Raises ConfigError.
    """
    body = sample_body(event_class(event_type)) if content is None else content
    if not changes:
        return body, []
    try:
        value = strict_json.loads(body)
    except BillhookError as error:
        raise ConfigError(f"--set needs a JSON body: {error}") from None
    kinds, paths = _field_types(event_type), []
    for change in changes:
        path, equals, text = change.partition("=")
        if not (path and equals):
            raise ConfigError(f"--set {change!r} is not PATH=VALUE, such as customerId=cus_1")
        # The type of a field or of a list's items; empty for a field that the model does not have.
        field = _INDEX.sub("[]", path)
        kind = kinds.get(field) or kinds.get(field.removesuffix("[]"), "").removeprefix("list of ")
        _set_field(value, path, _parse_value(text, kind))
        paths.append(path)
    # In a sample, fields that depend on a changed one follow it. A user's own file stays as it is otherwise:
    # it may be inconsistent on purpose, to test a handler.
    if content is None:
        value = in_agreement(event_type, cast("dict[str, Any]", value), {*paths})
    return strict_json.dumps(value), paths


def _parse_value(text: str, kind: str) -> object:
    """Return `text` decoded as JSON, or as it is; in a text field `42` is text, too."""
    try:
        # surrogateescape: an argument that is not UTF-8 must fail in the parser, not in this encoding.
        value = strict_json.loads(text.encode("utf-8", "surrogateescape"))
    except InvalidJSON:
        return text
    if isinstance(value, str) or not kind.startswith("text"):
        return value
    return None if value is None and kind == "text or null" else text


def _set_field(value: Any, path: str, new: object) -> None:
    """Set the field at `path`, such as `lines.0.amount`, in place. Raises ConfigError if there is no place.

    A missing object is created, a missing list item is not: its index would leave a gap.
    """
    *parents, last = path.split(".")
    for name in (*parents, last):
        if isinstance(value, list) and name.isdecimal() and int(name) < len(value):
            key: Any = int(name)
        elif isinstance(value, dict):
            key = name
            value.setdefault(key, {})
        else:
            raise ConfigError(f"--set {path}: the body has no place for {name!r}")
        outer, value = value, value[key]
    outer[key] = new


_NO_RECEIVER = "no receiver at this path; the default path is /webhooks/billing"


def _report(answers: Sequence[HttpReply], url: str, as_json: bool) -> None:
    """Print one answer with its body, or several as counts and times."""
    seconds = sorted(answer.seconds for answer in answers)
    summary = {"p50_ms": _milliseconds(seconds, 0.5), "p99_ms": _milliseconds(seconds, 0.99)}
    if as_json:
        statuses = Counter(sorted(str(answer.status) for answer in answers))
        body = {"body": answers[0].body} if len(answers) == 1 else {}
        print_json({"sent": len(answers), "statuses": statuses, **summary, **body})
        return
    if len(answers) == 1:
        status = answers[0].status
        text = printable("; ".join(filter(None, _explain(answers[0], url))))
        click.echo(f"{text if status is None else f'{status} {text}'} ({seconds[0] * 1000:.0f} ms)")
        return
    explained = [(answer.status, *_explain(answer, url)) for answer in answers]
    print_answers(Counter((status, first_line(text)) for status, text, _ in explained))
    for hint in dict.fromkeys(hint for *_, hint in explained if hint):
        click.echo(f"hint: {printable(hint)}")
    click.echo(f"{len(answers)} sent, p50 {summary['p50_ms']} ms, p99 {summary['p99_ms']} ms")


def _explain(answer: HttpReply, url: str) -> tuple[str, str]:
    """Return a receiver's answer, in place of any other server's page what it means; and a hint, or ""."""
    text, hint = answer.body.strip(), ""
    if answer.status is None:
        text = text if text.startswith("no answer") else f"no answer: {text}"
        if "refused" in text:
            hint = f"is the receiver running at {urlsplit(url).netloc}?"
    elif url.startswith("/") and answer.status >= 300 and not _is_object(text):
        # The path is a receiver's path in this app, and receivers answer with a JSON object: so a hook, a
        # middleware or an error handler of the app answered in its place.
        text = in_program("the app answered, not billhook; run `billhook check` to see why")
    elif answer.status == 401 and _is_object(text):
        hint = "the receiver has another secret (BILLHOOK_SECRETS, BILLHOOK_SECRETS_FILE) or scheme"
    elif answer.status in (404, 405) and not _is_object(text):
        text = _NO_RECEIVER
    # An HTML page with a 200 is usually a website's; one with a 5xx a proxy's in front of a receiver.
    elif text.startswith("<"):
        text = "an HTML page, not a receiver's answer" if answer.status >= 500 else _NO_RECEIVER
    return text, hint


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def _milliseconds(ordered: list[float], share: float) -> float:
    """Return the time in which this share of the answers arrived, in milliseconds."""
    return round(ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1000, 2)
