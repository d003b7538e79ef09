"""`billhook doctor` and `billhook check`: find out what is wrong, and say what to do about it.

`billhook doctor signature`: from a captured request and its secret, the signature scheme to configure.
"""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from billhook.basics.type_names import ANY_TYPE_NAME
from billhook.cli.capture import RawRequest, parse_request
from billhook.cli.context import (
    environment,
    handlers_argument,
    load_app,
    load_settings,
    load_subscribers,
    open_inbox,
    user_app,
)
from billhook.cli.output import CliError, UsageConfigError, print_json, print_table, printable
from billhook.cli.params import PATH, SECRET_FILE, TIME, DefaultGroup, as_json, integer, option
from billhook.clock import format_time
from billhook.doctor.checks import examine, run_checks
from billhook.doctor.examined import Setup
from billhook.doctor.finding import Finding, finding_of
from billhook.errors import BillhookError, ConfigError, PayloadError, SignatureError
from billhook.errors.program import no_variables
from billhook.events.type_field import parse_unread
from billhook.extension import configured_scheme, default_source
from billhook.receiver.blueprint import webhook_routes
from billhook.receiver.delivery_rules import RequestHeaders
from billhook.settings import read_secrets_file
from billhook.signing.schemes import SCHEMES
from billhook.signing.search import FoundScheme, SearchResult, search
from billhook.signing.source import DEFAULT_SOURCE, TYPE_HEADER, Source


@click.group(cls=DefaultGroup, default="examine", subcommand_metavar="[HANDLERS]... | signature [ARGS]...")
def doctor() -> None:
    """Examine options, secrets, inbox, handlers, gunicorn's settings and a sample of stored deliveries.

    HANDLERS are modules or .py files, as `worker` takes them; the default is BILLHOOK_HANDLERS. Each finding
    says why it matters and what to do. It changes nothing and delivers nothing, but asks Celery's workers
    which queues they consume. Exit code 1 if a finding is an error, 0 for warnings and notes. `check` sends a
    probe through the app.

    \b
    Examples:
      billhook doctor billing.py
      flask --app myshop billhook doctor --gunicorn deploy/gunicorn.conf.py --json
      billhook doctor signature --request request.http --secret-file secret.txt
    """


@doctor.command("examine", hidden=True)
@handlers_argument
@option(
    "--gunicorn FILE gunicorn_file",
    "gunicorn's settings file, which is executed. Default: ./gunicorn.conf.py, if there is one.",
    PATH,
)
@integer(
    "--sample", 0, 100_000, 1_000,
    "How many of the newest deliveries to look at for what the models do not list.",
)  # fmt: skip
@as_json
def examine_(handlers: Sequence[str], gunicorn_file: Path | None, sample: int, as_json: bool) -> None:
    """Examine everything: what `billhook doctor` does.

    \b
    Example:
      billhook doctor billing.py --sample 5000
    """
    how: dict[str, Any] = {"sample_size": sample, "gunicorn_file": gunicorn_file}
    with ExitStack() as closing:
        try:
            app = user_app()
            if app is not None:
                setup = Setup.of_app(app, **how)
            else:
                settings = load_settings()
                settings = replace(settings, handlers=tuple(handlers) or settings.handlers)
                setup = Setup(
                    settings, os.environ, lambda: [default_source(settings)],
                    lambda: closing.enter_context(open_inbox(missing_ok=True)),
                    lambda: load_subscribers(handlers), **how,
                )  # fmt: skip
            findings, _ = examine(setup, "doctor")
        except (BillhookError, CliError) as error:
            findings = [finding_of(error)]
    if as_json:
        well = all(each.level != "error" for each in findings)
        print_json({"ok": well, "findings": [asdict(each) for each in findings]})
    else:
        _print(findings)
    if any(each.level == "error" for each in findings):
        sys.exit(1)


def _print(findings: Sequence[Finding]) -> None:
    if not findings:
        click.echo("Nothing was found.")
        return
    for each in findings:
        click.echo(f"{each.level.upper()}: {printable(each.what)}")
        click.echo(f"  why it matters: {printable(each.why)}")
        click.echo(f"  what to do: {printable(each.remedy)}")
        if each.file:
            click.echo("\n" + printable(each.file, keep="\n"))
    counted = Counter(each.level for each in findings)
    click.echo(", ".join(f"{count} {level}{'s' if count > 1 else ''}" for level, count in counted.items()))


_WELL = ("ok", "note")
"""The levels of what is not wrong; a note may say that something was not examined."""


@click.command()
@handlers_argument
@option("--path PATH", "The path that the service posts to. Default: every receiver path of the app.")
@as_json
def check(handlers: Sequence[str], path: str | None, as_json: bool) -> None:
    """Check this app's configuration: its inbox, its handlers, and whether deliveries reach the receiver.

    HANDLERS are modules or .py files, as `worker` takes them; the default is BILLHOOK_HANDLERS.

    The app is served for a moment on a port of 127.0.0.1, to this command alone. A signed probe passes
    through all of the app's hooks and is not stored. If anything else answers in place of the receiver (a
    login hook, a missing route), or the receiver's answer is changed or does not arrive within 5 s, the
    command shows what to change. Exit code 1 if anything is wrong.

    \b
    Examples:
      flask --app myshop billhook check
      flask --app myshop billhook check --path /webhooks/billing
      billhook check billing.py --json
    """
    setup = Setup.of_app(load_app(environment(handlers)))
    checks = [*run_checks(setup, "check", path)]
    well = all(found.level in _WELL for _, found in checks)
    if as_json:
        told = [{"what": name, "ok": found.level in _WELL, "told": found.line} for name, found in checks]
        print_json({"ok": well, "checks": told})
    else:
        rows = [
            (found.level if found.level in _WELL else "WRONG", name, found.line) for name, found in checks
        ]
        print_table(("", "checked", "found"), rows, whole=["", "checked"])
    if not well:
        sys.exit(1)


_USUAL_HEADERS = re.compile(
    r"([a-z0-9-]+-)?(topic|event(-name|-key)?|(event|hook|webhook)-type)", re.IGNORECASE
)
"""Headers in which senders name the event type."""
_USUAL_FIELDS = (
    "event.type", "type", "event_type", "eventType", "event_name", "event", "topic", "meta.event_name"
)  # fmt: skip
"""Where senders name the event type in the body, the most specific first: Slack's `type` is an envelope's."""
_MAX_FILE_BYTES = 32 * 1024 * 1024


@doctor.command(short_help="Find the signature scheme of a captured request.")
@option(
    "--request FILE request_file",
    "A raw HTTP request, head and body, as `billhook capture` records it.",
    PATH,
    required=True,
)
@option(
    "--secret-file",
    "A file with the secret, or several, newest first. Default: BILLHOOK_SECRETS.",
    SECRET_FILE,
)
@option(
    "--at captured_at",
    "When the request was captured: an age (2h) or ISO 8601. Default: when the file was last changed.",
    TIME,
)
@as_json
def signature(
    request_file: Path, secret_file: str | None, captured_at: datetime | None, as_json: bool
) -> None:
    """Find out how a captured request is signed, and print the configuration for it.

    Algorithm, encoding, prefix, content, format of the time, and the headers are found by trying them with
    the secret. If nothing fits, the command says what comes near: a body that a proxy wrote anew, an older
    secret, a secret that is decoded in another way, a header that is missing, a clock that is wrong. Exit
    code 1 if no scheme fits, or the clock is wrong. Neither secret nor signature is printed.

    \b
    Examples:
      billhook capture --to captured
      billhook doctor signature --request captured/20260115T093000-0001.http --secret-file secret.txt
    """
    try:
        with request_file.open("rb") as stream:
            raw = stream.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise UsageConfigError(f"--request {request_file} cannot be read: {error.strerror}") from None
    if len(raw) > _MAX_FILE_BYTES:
        raise UsageConfigError(f"--request {request_file} is over {_MAX_FILE_BYTES} bytes: give one request")
    request = parse_request(raw, str(request_file))
    # With --secret-file, a mistake in the options does not matter.
    secrets = (
        read_secrets_file(secret_file, "--secret-file") if secret_file else load_settings().read_secrets()
    )
    if not secrets:
        raise ConfigError(
            f"no secret to try: give --secret-file, or set BILLHOOK_SECRETS_FILE{no_variables()}"
        )
    result = search(
        request.headers, request.body, secrets, target=request.target, type_header=_types_place()[0],
        captured_at=captured_at or datetime.fromtimestamp(request_file.stat().st_mtime, UTC),
    )  # fmt: skip
    notes = [*_notes(request, result), *_about_what_is_set(request, result, secrets)]
    if as_json:
        misses = [
            {"kind": each.kind, "said": each.explanation, "scheme": _scheme_json(each.scheme, secret_file)}
            for each in result.near_misses
        ]
        print_json({
            "found": bool(result.schemes),
            "schemes": [_scheme_json(each, secret_file) for each in result.schemes],
            "near_misses": misses,
            "signature_headers": result.signature_headers,
            "contents_tried": result.tried,
            "notes": notes,
        })  # fmt: skip
    else:
        lines = [line for each in result.schemes[:1] for line in _scheme_lines(each, secret_file)]
        lines += [
            f"Also fits: {other.kind} over {other.content!r}, in {other.signature_header}"
            for other in result.schemes[1:3]
        ]
        title = "What is wrong:" if lines else "What may be wrong:"
        lines = lines or ["No scheme fits this request."]
        lines += [
            *_listed(title, [each.explanation for each in result.near_misses]),
            *_listed("Note:", notes),
        ]
        click.echo(printable("\n".join(lines), keep="\n"))
    if not result.schemes or any(each.kind == "clock" for each in result.near_misses):
        sys.exit(1)


def _types_place() -> tuple[str, str | None]:
    """Return the header and the field of the body that name the type, as the options have it."""
    try:
        settings = load_settings()
    except BillhookError:  # a mistake in the options does not matter here either
        return TYPE_HEADER, None
    return settings.type_header, settings.type_field


def options_of(found: FoundScheme) -> dict[str, str] | None:
    """Return the BILLHOOK_ options that describe a scheme; None if none do."""
    names = {argument: option for option, argument in found.scheme.options.items()}
    if type(found.scheme) not in SCHEMES.values() or not names.keys() >= found.arguments.keys():
        return None
    options = {f"BILLHOOK_{names[each].upper()}": value for each, value in found.arguments.items()}
    return {"BILLHOOK_SIGNATURE": found.scheme.name, **options}


def python_of(found: FoundScheme, secret_file: str | None) -> str:
    """Return the code for an app that receives what is signed so, in the default source's place."""
    arguments = [f"        {name}={value!r},\n" for name, value in found.arguments.items()]
    call = f"{found.kind}(\n{''.join(arguments)}    )" if arguments else f"{found.kind}()"
    file = f"Path({secret_file or 'secret.txt'!r}).read_text()"
    # A file may hold several secrets, one a line, and a key in PEM has lines of its own.
    secrets = f"[{file}]" if found.has_pem else f"{file}.splitlines()"
    return (
        "from pathlib import Path\n\n"
        "from billhook import Billhook, Source\n"
        f"from billhook.signing import {found.kind}\n\n"
        "source = Source(\n"
        '    "default",\n'
        f"    scheme={call},\n"
        f"    secrets={secrets},\n"
        ")\n"
        "hooks = Billhook(sources=[source])\n"
    )


def _scheme_lines(found: FoundScheme, secret_file: str | None) -> list[str]:
    when = "at no time" if found.signed_at is None else f"at {format_time(found.signed_at)} UTC"
    lines = [
        f"Found: {found.kind}, signed {when} with secret {found.secret_number}",
        f"  header:  {found.signature_header}",
        f"  content: {found.content!r}",
    ]
    if found.secret_change:
        lines += ["", f"The secret has to be changed in its file: {found.secret_change}."]
    options = options_of(found)
    if options is not None:
        lines += ["", "Set these options:", ""]
        return [*lines, *(f"  {name}={value}" for name, value in options.items())]
    lines += ["", "No option describes this scheme: a Flask app names it in Python.", ""]
    return [*lines, *(f"  {line}".rstrip() for line in python_of(found, secret_file).splitlines())]


def _listed(title: str, sentences: Sequence[str]) -> list[str]:
    return ["", title, *(f"  - {each}" for each in sentences)] if sentences else []


def _scheme_json(found: FoundScheme | None, secret_file: str | None) -> dict[str, Any] | None:
    if found is None:
        return None
    same = ("kind", "arguments", "secret_number", "signature_header", "content", "signed_at")
    made = {"options": options_of(found), "python": python_of(found, secret_file)}
    return (
        {name: getattr(found, name) for name in same} | made | {"secret_change": found.secret_change or None}
    )


def _notes(request: RawRequest, result: SearchResult) -> list[str]:
    notes = [f"about the file: {remark}" for remark in request.remarks]
    names = {name.lower() for name in request.headers}
    if request.method != "POST":
        notes.append(f"the request is a {request.method}: the receiver takes POST alone")
    notes += _about_the_type(request, names)
    if "content-encoding" in names:
        notes.append("the body is compressed, which the receiver answers with 415")
    best = result.schemes[0] if result.schemes else None
    if best is not None and best.kind == "StandardWebhooks" and best.arguments:
        notes.append(
            "the headers are not called webhook-id, webhook-timestamp and webhook-signature, as Standard "
            "Webhooks has them: they are the sender's own, or something on the way renames them"
        )
    if best is not None and best.signed_at is None:
        notes.append(
            "this scheme signs no time: who saw a delivery can send it again, and only its key stops that"
        )
    return notes


def _about_the_type(request: RawRequest, names: Collection[str]) -> Iterator[str]:
    """Say what is missing of the event type, where the options say that it is."""
    type_header, type_field = _types_place()
    if type_field is not None:
        with suppress(PayloadError):
            parse_unread("", type_field, request.body)
            return
        yield f"the body has no event type in the field {type_field!r}: such a delivery waits in quarantine"
    elif type_header.lower() not in names:
        text = f"the request has no {type_header} header: a delivery without it waits in quarantine; "
        found = [
            f"its header {name} names {value!r}, BILLHOOK_TYPE_HEADER={name}"
            for name, value in request.headers.items()
            if _USUAL_HEADERS.fullmatch(name) and ANY_TYPE_NAME.fullmatch(value)
        ]
        for path in _USUAL_FIELDS:
            with suppress(PayloadError):
                named = parse_unread("", path, request.body).type
                found.append(f"its body names {named!r} in a field, BILLHOOK_TYPE_FIELD={path}")
                break
        yield text + (", or ".join(found) or "a proxy in front can add it")


def _about_what_is_set(request: RawRequest, result: SearchResult, secrets: Sequence[str]) -> list[str]:
    """Say whether what is configured now would take this request, but for its age."""
    if not result.schemes:
        return []
    app = user_app()
    try:
        if app is None:
            scheme = configured_scheme(load_settings())
            source = Source(DEFAULT_SOURCE, scheme, secrets, type_header=_types_place()[0])
            named = {f"the scheme that is configured ({scheme.name})": source}
        else:
            sources = [route.source for route in webhook_routes(app)]
            named = {f"the app's source {each.name!r} ({each.scheme.name})": each for each in sources}
        keys = {name: each.keys for name, each in named.items()}
    except BillhookError as error:
        return [f"the scheme that is configured cannot be used with these secrets: {error}"]
    headers = RequestHeaders({name.lower(): value for name, value in request.headers.items()})
    now = result.schemes[0].signed_at or datetime.now(UTC)
    notes = []
    for name, each in named.items():
        event_type, verdict = headers.get(each.type_header or TYPE_HEADER, ""), "would accept this request"
        try:
            each.scheme.verify(
                headers, request.body, keys[name], event_type=event_type, now=now, tolerance_seconds=1
            )
        except SignatureError as error:
            verdict = f"would refuse this request: {error}"
        notes.append(f"{name} {verdict}")
    return notes
