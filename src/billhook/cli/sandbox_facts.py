"""What the users of a sandbox need to know: how to call it, and how to verify what it sends."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field

import click

from billhook.cli.output import print_json
from billhook.settings import OPTIONS, Settings

__all__ = ["Facts", "tell"]

_SIGNING = (
    "BILLHOOK_SIGNATURE",
    "BILLHOOK_SIGNATURE_HEADER",
    "BILLHOOK_TIMESTAMP_HEADER",
    "BILLHOOK_SIGNATURE_PREFIX",
)
_PEM_FILE = "billhook-sandbox.pem"


@dataclass(frozen=True, slots=True)
class Facts:
    """What `billhook sandbox` prints."""

    client_id: str
    api_token: str | None = field(repr=False)
    """None if it was told before."""
    signing_secret: str | None = field(repr=False)
    """None if its owner gave it, or if it is the private half of a pair."""
    public_key: str | None
    """What receivers verify with where deliveries are signed with the private half."""


def tell(url: str, facts: Facts, settings: Settings, as_json: bool) -> None:
    """Print them, with lines for a shell; as JSON if wanted."""
    if as_json:
        print_json({"url": url, **asdict(facts)})
        return
    token, secret = facts.api_token, facts.signing_secret
    click.echo(f"billhook sandbox at {url}, described at {url}/openapi/")
    click.echo(f"  client id       {facts.client_id}")
    click.echo(f"  API token       {token or 'as it was: it was told once; --new-token makes another'}")
    if facts.public_key is None:
        click.echo(f"  signing secret  {secret or 'as you gave it'}")
    else:
        click.echo("  public key      below, to verify with; the private key stays here")
    click.echo("To speak to it from another terminal:")
    click.echo(f"  export BILLHOOK_API_URL={url} BILLHOOK_API_CLIENT_ID={shlex.quote(facts.client_id)}")
    if token:
        click.echo(f"  export BILLHOOK_API_REFRESH_TOKEN={token}")
    if lines := [*_scheme(settings), *_to_verify(facts.public_key or secret)]:
        click.echo("To receive from it:")
        for line in lines:
            click.echo(line)


def _scheme(settings: Settings) -> Iterator[str]:
    """The options that say how deliveries are signed, where they are not the default."""
    for option in OPTIONS:
        value = getattr(settings, option.attribute)
        if option.key in _SIGNING and value != option.default:
            yield f"  export {option.key}={shlex.quote(str(value))}"
    if settings.signature == "body-hmac":  # it signs no time: receivers want to be told that one knows
        yield "  export BILLHOOK_REPLAY_PROTECTION=dedupe-only"


def _to_verify(secret: str | None) -> Iterator[str]:
    if secret is None:
        return
    if "\n" not in secret:
        yield f"  export BILLHOOK_SECRETS={shlex.quote(secret)}"
        return
    yield f"  cat > {_PEM_FILE} <<'END'"
    yield f"{secret.rstrip()}\nEND"
    yield f'  export BILLHOOK_SECRETS_FILE="$PWD/{_PEM_FILE}"'
