"""`billhook sandbox`: run the billing service here; `billhook sandbox call`: send it a request."""

from __future__ import annotations

import shlex
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any

import click

from billhook.cli.api_calls import open_client
from billhook.cli.output import print_json, print_wire, progress, say
from billhook.cli.params import SECRET_FILE, TCP_BIND, as_json, check_bindable, flag, host_and_port, option
from billhook.cli.send import FILE_TO_SIGN_WITH, signing_settings
from billhook.extension import configured_scheme
from billhook.fields import strict_json
from billhook.settings import OPTIONS, Settings
from billhook.signing.schemes import SCHEMES

if TYPE_CHECKING:
    from billhook.sandbox import Sandbox

_TEMPORARY = "temporary"
_ENDING = {signal.SIGHUP, signal.SIGINT, signal.SIGTERM}
_CALL_TIMEOUT_SECONDS = 90.0
"""Longer than the 60 seconds for which `POST /_sandbox/flush` may wait."""


@click.group(invoke_without_command=True)
@option("--bind", "HOST:PORT.", TCP_BIND, default="127.0.0.1:8300")
@option(
    "--database URL",
    f"sqlite:///FILE; `{_TEMPORARY}`: a file that is deleted at exit.",
    default="sqlite:///billhook-sandbox.db",
    envvar="BILLHOOK_SANDBOX_DATABASE",
    show_envvar=True,
)
@option("--client-id TEXT", "The client id: the value of the x-api-key header.", default="sandbox")
@flag("--new-token", "Create a new API token; the previous one becomes invalid.")
@option("--secret-file", f"{FILE_TO_SIGN_WITH}, or a random one.", SECRET_FILE)
@flag("--allow-private", "Also deliver to loopback and private addresses.")
@option("--seed", "Start with example customers, contracts and meters.", click.Choice(["demo"]))
@option("--random-seed", "The random seed of faults and jitter, for repeatable runs.", int)
@option("--rate-limit", "Answer 429 above this rate.", default="1000/second")
@as_json
def sandbox(
    bind: str,
    database: str,
    new_token: bool,
    secret_file: str | None,
    seed: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Run the billing service here: its whole API, a clock that you can move, and real signed webhooks.

    Prints the client id, the API token (only once), and the signing secret or the public key that receivers
    verify with. BILLHOOK_SIGNATURE sets the scheme. Open the printed address to work with it in a browser: it
    logs you in once. The reference of the API is at /openapi/, the control API under /_sandbox. Stops on
    SIGTERM, Ctrl-C and with its terminal. Needs the extra sandbox.

    \b
    Examples:
      billhook sandbox --allow-private --seed demo
      billhook sandbox --database temporary
      billhook sandbox call POST /_sandbox/clock '{"advance": "P30D"}'
    """
    if click.get_current_context().invoked_subcommand is not None:
        return
    from billhook.sandbox import Sandbox, SandboxOptions
    from billhook.sandbox.storage.database import parsed_url

    settings = signing_settings()
    with ExitStack() as stack:
        # Held until they are waited for, in this thread and those that it starts: else one that another
        # thread receives may find this thread asleep, and not wake it.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
        stack.callback(signal.pthread_sigmask, signal.SIG_SETMASK, before)
        url = "sqlite://" if database == _TEMPORARY else database
        parsed_url(url)  # a mistake in the URL is reported before one in the secrets
        scheme, secrets = configured_scheme(settings), settings.read_secrets(secret_file)
        made_of = SandboxOptions(scheme=scheme, secrets=secrets, database_url=url, **options)
        check_bindable(bind)  # after the cheaper checks, and before a database is created
        made = stack.enter_context(closing(Sandbox(made_of)))
        credentials = _prepare(made, seed)
        address = stack.enter_context(made.run(*host_and_port(bind)))
        login = made.login_address(address)
        # Stored at the end of this block: a token that was stored and not printed is of no use.
        with made.issue_api_token(new=new_token) as token:
            credentials["api_token"] = token
            if as_json:
                print_json({"url": address, "login_url": login, **credentials})
            else:
                _print_credentials(address, login, credentials, settings)
            sys.stdout.flush()
        signal.sigwait(_ENDING)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)  # a second one ends it at once


@sandbox.command()
@click.argument("method", type=click.Choice(["GET", "POST", "PUT", "DELETE"], case_sensitive=False))
@click.argument("path", metavar="PATH")
@click.argument("body", required=False, metavar="[JSON]")
def call(method: str, path: str, body: str | None) -> None:
    """Send any request to the sandbox and print the answer. JSON is the body; - reads it from stdin.

    BILLHOOK_API_URL, BILLHOOK_API_CLIENT_ID and BILLHOOK_API_REFRESH_TOKEN select the sandbox. PATH is
    percent-encoded, as in a URL.

    \b
    Examples:
      billhook sandbox call POST /_sandbox/trigger/PaymentFailed '{"amount": 12.5}'
      billhook sandbox call GET '/_sandbox/deliveries?state=failed'
    """
    raw = body.encode("utf-8", "surrogateescape") if body is not None else None
    if body == "-":
        raw = sys.stdin.buffer.read()
    if raw is None and method in ("POST", "PUT"):
        raw = b"{}"
    # Parsed and written again with the digits unchanged: invalid JSON is reported here, by its position.
    value = None if raw is None else strict_json.loads(raw)
    with open_client(_CALL_TIMEOUT_SECONDS) as client:
        answer = client.request(method, path, value)
    print_wire(strict_json.dumps(answer))


def _prepare(sandbox: Sandbox, seed: str | None) -> dict[str, str | None]:
    """Seed the sandbox, before the server accepts requests; return what to print.

    `api_token` is printed once; `signing_secret` is None if the user gave it, or if receivers verify with the
    `public_key`.
    """
    if seed is not None:
        from billhook.sandbox.scenario import seed_demo_data

        with progress(f"planting {seed}", None) as steps:
            seeded = seed_demo_data(sandbox.call, sandbox.clock.now(), steps)
        if not seeded:
            say(f"note: the database already has the seed {seed}: nothing was added")
    key = sandbox.signing_secret
    assert isinstance(key, str)  # noqa: S101 - no scheme of the settings names its keys
    return {
        "client_id": sandbox.client_id,
        "api_token": None,
        # A secret that the user set is not printed again: terminals are recorded and shared.
        "signing_secret": None if sandbox.options.secrets or sandbox.has_public_key else key,
        "public_key": key if sandbox.has_public_key else None,
    }


_PEM_FILE = "billhook-sandbox.pem"


def _print_credentials(
    url: str, login: str, credentials: Mapping[str, str | None], settings: Settings
) -> None:
    """Print the credentials with shell commands that export them."""
    client_id, token = credentials["client_id"] or "", credentials["api_token"]
    secret, public_key = credentials["signing_secret"], credentials["public_key"]
    exports = [*_exports(settings, public_key or secret)]
    lines = [
        f"billhook sandbox at {url}, described at {url}/openapi/",
        f"  in a browser    {login}",
        "                  (logs in once; later with the client id and the API token)",
        f"  client id       {client_id}",
        f"  API token       {token or 'unchanged (it is printed once); --new-token creates another'}",
        f"  signing secret  {secret or 'the one you gave'}"
        if public_key is None
        else "  public key      see below; the private key stays here",
        "To call it from another terminal:",
        f"  export BILLHOOK_API_URL={url} BILLHOOK_API_CLIENT_ID={shlex.quote(client_id)}",
        *([f"  export BILLHOOK_API_REFRESH_TOKEN={token}"] if token else []),
        *(["To receive from it:", *exports] if exports else []),
    ]
    click.echo("\n".join(lines))


def _exports(settings: Settings, secret: str | None) -> Iterator[str]:
    """Yield the signature options that differ from their defaults, and the secret."""
    needed = ("signature", *SCHEMES[settings.signature].options)
    for each in OPTIONS:
        value = getattr(settings, each.attribute)
        if each.attribute in needed and value != each.default:
            yield f"  export {each.key}={shlex.quote(str(value))}"
    if secret is not None and "\n" not in secret:
        yield f"  export BILLHOOK_SECRETS={shlex.quote(secret)}"
    elif secret is not None:
        # A PEM key has several lines: as a file, because they are easily lost in an environment variable.
        yield f"  cat > {_PEM_FILE} <<'END'\n{secret.rstrip()}\nEND"
        yield f'  export BILLHOOK_SECRETS_FILE="$PWD/{_PEM_FILE}"'
