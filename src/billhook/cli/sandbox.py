"""`billhook sandbox`: the billing service, running here."""

from __future__ import annotations

import dataclasses
import sys
import tempfile
from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

from billhook.cli.binding import TCP_BIND, check_free
from billhook.cli.output import progress
from billhook.cli.params import as_json
from billhook.cli.sandbox_facts import Facts, tell
from billhook.cli.where import the_settings

if TYPE_CHECKING:
    from billhook.sandbox import Sandbox, SandboxOptions
    from billhook.settings import Settings

__all__ = ["sandbox"]

_TEMPORARY = ("temporary", "sqlite://")
_PATIENCE_SECONDS = 90.0


@click.group(invoke_without_command=True, short_help="Run the billing service here.")
@click.option("--bind", type=TCP_BIND, default="127.0.0.1:8300", show_default=True, help="HOST:PORT.")
@click.option(
    "--database", metavar="URL", default="sqlite:///billhook-sandbox.db", show_default=True,
    envvar="BILLHOOK_SANDBOX_DATABASE", show_envvar=True,
    help=f"SQLAlchemy's URL, for SQLite or PostgreSQL; `{_TEMPORARY[0]}` for a file that goes at the end.",
)  # fmt: skip
@click.option("--client-id", default="sandbox", show_default=True, help="What x-api-key must be.")
@click.option("--new-token", is_flag=True, help="Make another API token; the one before it ends.")
@click.option(
    "--secret-file", type=click.Path(exists=True, dir_okay=False),
    help="A file with the secret that deliveries are signed with (for timestamped-rsa: the private key). "
    "Default: BILLHOOK_SECRETS, or a random one.",
)  # fmt: skip
@click.option("--allow-private", is_flag=True, help="Deliver to loopback and private addresses, too.")
@click.option("--seed", type=click.Choice(["demo"]), help="Begin with customers, contracts and meters.")
@click.option("--random-seed", type=int, help="Make faults and jitter the same each time.")
@click.option("--rate-limit", default="1000/second", show_default=True, help="Answer 429 beyond it.")
@as_json
@click.pass_context
def sandbox(
    context: click.Context,
    bind: str,
    database: str,
    client_id: str,
    new_token: bool,
    secret_file: str | None,
    allow_private: bool,
    seed: str | None,
    random_seed: int | None,
    rate_limit: str,
    as_json: bool,
) -> None:
    """Run the billing service here: its whole API, a clock that can be moved, and real signed webhooks.

    Prints the client id, the API token (once: it is not shown again), and the signing secret or the public
    key that receivers verify with. Deliveries are signed as BILLHOOK_SIGNATURE says. Its API is described
    at /openapi/, its own operations are under /_sandbox. Ends at SIGTERM, at Ctrl-C and with its terminal.
    Needs pip install 'billhook[sandbox]'.

    \b
    Examples:
      billhook sandbox --allow-private --seed demo
      BILLHOOK_SANDBOX_DATABASE=postgresql+psycopg://me:PASSWORD@db/sandbox billhook sandbox
      billhook sandbox call POST /_sandbox/clock '{"advance": "P30D"}'
    """
    if context.invoked_subcommand is not None:
        return
    from billhook.sandbox.server import serve

    # The sender is not who has to be protected from replays.
    settings = dataclasses.replace(the_settings(), replay_protection="dedupe-only")
    with tempfile.TemporaryDirectory(prefix="billhook-sandbox-") as folder:
        options = _options(
            settings,
            secret_file,
            database_url=f"sqlite:///{folder}/sandbox.db" if database in _TEMPORARY else database,
            client_id=client_id,
            allow_private=allow_private,
            rate_limit=rate_limit,
            random_seed=random_seed,
        )
        check_free(bind)  # after what is wrong wherever it listens, and before a database is made
        facts = _prepare(options, seed)
        serve(options, bind, lambda url: _tell(url, facts, options, new_token, settings, as_json))


@sandbox.command()
@click.argument("method", type=click.Choice(["GET", "POST", "PUT", "DELETE"], case_sensitive=False))
@click.argument("path", metavar="PATH")
@click.argument("body", required=False, metavar="[JSON]")
def call(method: str, path: str, body: str | None) -> None:
    """Send any request to the sandbox, and print the answer; JSON is the body, - reads it from stdin.

    It is the one that BILLHOOK_API_URL names, with BILLHOOK_API_CLIENT_ID and BILLHOOK_API_REFRESH_TOKEN.

    \b
    Examples:
      billhook sandbox call POST /_sandbox/trigger/PaymentFailed '{"amount": 12.5}'
      billhook sandbox call GET '/_sandbox/deliveries?state=failed'
    """
    from billhook.cli.api_output import print_wire
    from billhook.cli.caller import Caller
    from billhook.client import BillingClient
    from billhook.wire import strict_json

    if not path.startswith("/") or not path.isascii() or not path.isprintable() or " " in path:
        raise click.UsageError("PATH is an address on the sandbox, percent-encoded: /_sandbox/clock")
    raw = body.encode("utf-8", "surrogateescape") if body is not None else None
    if body == "-":
        raw = sys.stdin.buffer.read()
    if raw is None and method in ("POST", "PUT"):
        raw = b"{}"
    given = None if raw is None else strict_json.loads(raw)
    url, client_id, token = BillingClient.credentials(the_settings())
    caller = Caller(url, client_id.get_secret_value(), token.get_secret_value(), _PATIENCE_SECONDS)
    print_wire(strict_json.dumps(caller.call(method, path, given)))


def _options(settings: Settings, secret_file: str | None, **more: Any) -> SandboxOptions:
    from billhook.extension import scheme_of
    from billhook.sandbox import SandboxOptions
    from billhook.sandbox.storage.engines import parsed_url

    parsed_url(more["database_url"])
    secrets = _secrets(secret_file, settings.secrets, settings.secrets_file)
    return SandboxOptions(scheme=scheme_of(settings), secrets=secrets, **more)


def _secrets(file: str | None, given: tuple[str, ...], given_file: str | None) -> tuple[str, ...]:
    from billhook.settings import read_secrets_file

    path = file or given_file
    return tuple(read_secrets_file(path)) if path is not None else tuple(given)


def _prepare(options: SandboxOptions, seed: str | None) -> Facts:
    """Make the database and what is wanted in it, before anybody is answered."""
    from billhook.sandbox import Sandbox

    with closing(Sandbox(options)) as made:
        if seed is not None:
            from billhook.sandbox.seeds import plant

            with progress(f"planting {seed}", None) as steps:
                planted = plant(made, steps.advance)
            if not planted:
                click.echo(f"note: {seed} is there already: nothing was added", err=True)
        secret, public_key = _verifying(made)
        return Facts(made.client_id, None, None if options.secrets else secret, public_key)


def _verifying(made: Sandbox) -> tuple[str | None, str | None]:
    """The shared secret or the public key, whichever the scheme has."""
    told = made.signing_secret
    assert isinstance(told, str)  # noqa: S101 - no scheme of the settings names its keys
    return (None, told) if made.has_public_key else (told, None)


def _tell(
    url: str, facts: Facts, options: SandboxOptions, new_token: bool, settings: Settings, as_json: bool
) -> None:
    """Last of all, for a token that was made and is not on the screen yet would be lost at Ctrl-C."""
    from billhook.sandbox import Sandbox

    with closing(Sandbox(options)) as made, made.telling_api_token(new=new_token) as token:
        tell(url, dataclasses.replace(facts, api_token=token), settings, as_json)
        sys.stdout.flush()
