"""`billhook doctor signature`: from a captured request and its secret, the signature scheme to configure."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from billhook.cli.capture import RawRequest, parse_request
from billhook.cli.context import load_settings, user_app
from billhook.cli.output import UsageConfigError, print_json, printable
from billhook.cli.params import TIME, as_json, existing_file
from billhook.errors import BillhookError, ConfigError, SignatureError
from billhook.extension import configured_scheme
from billhook.receiver.blueprint import webhook_routes
from billhook.receiver.intake import RequestHeaders
from billhook.settings import read_secrets_file
from billhook.signing.search import FoundScheme, SearchResult, search
from billhook.signing.source import DEFAULT_SOURCE, TYPE_HEADER, Source

_MAX_FILE_BYTES = 32 * 1024 * 1024
_OPTIONS = {"header": "signature_header", "prefix": "signature_prefix"}
"""Names of options, where they are not those of the arguments."""


@click.command(short_help="Find the signature scheme of a captured request.")
@click.option(
    "--request", "request_file", required=True, metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A raw HTTP request, head and body, as `billhook capture` records it.",
)  # fmt: skip
@existing_file(
    "--secret-file", "A file with the secret, or several, newest first. Default: BILLHOOK_SECRETS."
)
@click.option(
    "--at", "captured_at", type=TIME,
    help="When the request was captured: an age (2h) or ISO 8601. Default: when the file was last changed.",
)  # fmt: skip
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
    request = _read_request(request_file)
    # With --secret-file, a mistake in the options does not matter.
    secrets = read_secrets_file(secret_file) if secret_file else load_settings().read_secrets()
    if not secrets:
        raise ConfigError("no secret to try: give --secret-file, or set BILLHOOK_SECRETS_FILE")
    result = search(
        request.headers, request.body, secrets, target=request.target, type_header=_type_header(),
        captured_at=captured_at or datetime.fromtimestamp(request_file.stat().st_mtime, UTC),
    )  # fmt: skip
    notes = [*_notes(request, result), *_about_what_is_set(request, result, secrets)]
    if as_json:
        print_json(_as_json(result, notes, secret_file))
    else:
        click.echo(printable("\n".join(_told(result, notes, secret_file)), keep="\n"))
    if not result.schemes or any(each.kind == "clock" for each in result.near_misses):
        sys.exit(1)


def _read_request(path: Path) -> RawRequest:
    try:
        with path.open("rb") as stream:
            raw = stream.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise UsageConfigError(f"--request {path} cannot be read: {error.strerror}") from None
    if len(raw) > _MAX_FILE_BYTES:
        raise UsageConfigError(f"--request {path} is over {_MAX_FILE_BYTES} bytes: give one request")
    return parse_request(raw, str(path))


def _type_header() -> str:
    try:
        return load_settings().type_header
    except BillhookError:  # a mistake in the options does not matter here either
        return TYPE_HEADER


# --- what is printed ------------------------------------------------------------------------------


def options_of(found: FoundScheme) -> dict[str, str] | None:
    """Return the BILLHOOK_ options that describe a scheme; None if none do."""
    renamed = found.kind == "StandardWebhooks" and found.arguments
    if renamed or found.kind in ("SignatureTemplate", "BodyJWT"):
        return None
    arguments = {_OPTIONS.get(name, name): value for name, value in found.arguments.items()}
    options = {"signature": found.scheme.name, **arguments}
    return {f"BILLHOOK_{name.upper()}": value for name, value in options.items()}


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


def _told(result: SearchResult, notes: Sequence[str], secret_file: str | None) -> list[str]:
    lines = [line for each in result.schemes[:1] for line in _told_scheme(each, secret_file)]
    lines += [
        f"Also fits: {other.kind} over {other.content!r}, in {other.signature_header}"
        for other in result.schemes[1:3]
    ]
    wrong = [each.explanation for each in result.near_misses]
    title = "What is wrong:" if lines else "What may be wrong:"
    lines = lines or ["No scheme fits this request."]
    return [*lines, *_listed(title, wrong), *_listed("Note:", notes)]


def _told_scheme(found: FoundScheme, secret_file: str | None) -> list[str]:
    when = "at no time" if found.signed_at is None else f"at {found.signed_at:%Y-%m-%d %H:%M:%S} UTC"
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


def _as_json(result: SearchResult, notes: Sequence[str], secret_file: str | None) -> dict[str, Any]:
    misses = [
        {"kind": each.kind, "said": each.explanation}
        | {"scheme": each.scheme and _scheme_json(each.scheme, secret_file)}
        for each in result.near_misses
    ]
    return {
        "found": bool(result.schemes),
        "schemes": [_scheme_json(each, secret_file) for each in result.schemes],
        "near_misses": misses,
        "signature_headers": result.signature_headers,
        "contents_tried": result.tried,
        "notes": notes,
    }


def _scheme_json(found: FoundScheme, secret_file: str | None) -> dict[str, Any]:
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
    type_header = _type_header()
    if type_header.lower() not in names:
        notes.append(
            f"the request has no {type_header} header: a delivery without it waits in quarantine; a proxy in "
            "front can add it"
        )
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


def _about_what_is_set(request: RawRequest, result: SearchResult, secrets: Sequence[str]) -> list[str]:
    """Say whether what is configured now would take this request, but for its age."""
    if not result.schemes:
        return []
    app = user_app()
    try:
        if app is None:
            scheme = configured_scheme(load_settings())
            source = Source(DEFAULT_SOURCE, scheme, secrets, type_header=_type_header())
            named = {f"the scheme that is configured ({scheme.name})": source}
        else:
            sources = [route.source for route in webhook_routes(app)]
            named = {f"the app's source {each.name!r} ({each.scheme.name})": each for each in sources}
        return [
            f"{name} {_verdict(each, request, result.schemes[0].signed_at)}" for name, each in named.items()
        ]
    except BillhookError as error:
        return [f"the scheme that is configured cannot be used with these secrets: {error}"]


def _verdict(source: Source, request: RawRequest, signed_at: datetime | None) -> str:
    headers = RequestHeaders({name.lower(): value for name, value in request.headers.items()})
    event_type, now = headers.get(source.type_header or TYPE_HEADER, ""), signed_at or datetime.now(UTC)
    try:
        source.scheme.verify(
            headers, request.body, source.keys, event_type=event_type, now=now, tolerance_seconds=1
        )
    except SignatureError as error:
        return f"would refuse this request: {error}"
    return "would accept this request"
