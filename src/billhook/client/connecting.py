"""Where the service is, and the machine's own ways there: both are checked before anything is sent."""

from __future__ import annotations

import logging
import re

import httpx2

from billhook.errors import ConfigError

__all__ = ["base_address", "opened"]

logger = logging.getLogger("billhook.client")

_HOST = re.compile(rb"[0-9A-Za-z._:-]+")  # the library takes others, and asks for `a%20b`


def opened(transport: httpx2.BaseTransport | None) -> httpx2.Client:
    """The library, which reads HTTPS_PROXY and SSL_CERT_FILE and their like. Raises ConfigError.

    A proxy's address may hold a password, so none is repeated.
    """
    try:
        return httpx2.Client(transport=transport, follow_redirects=False)
    except ImportError:
        problem = "a SOCKS proxy is set: pip install 'httpx2[socks]', or look at"
    except OSError as error:
        problem = f"certificates cannot be read ({error.strerror or type(error).__name__}): look at"
    except (ValueError, httpx2.InvalidURL):
        problem = "a proxy's address cannot be read: look at"
    raise ConfigError(
        f"{problem} HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, SSL_CERT_FILE and SSL_CERT_DIR in the environment"
    )


def base_address(base_url: str) -> str:
    """The address without a slash at its end. Raises ConfigError for what is none; repeats none of it."""
    try:
        url = httpx2.URL(base_url)
        url.raw_host.decode("ascii").encode(
            "idna"
        )  # as the socket does, which fails at empty and long labels
    except (httpx2.InvalidURL, TypeError, UnicodeError):
        url = httpx2.URL()
    if url.userinfo:
        raise ConfigError(
            "the base address of the billing service (BILLHOOK_API_URL) has a user name or password in it: "
            "leave that out"
        )
    named = url.scheme in ("http", "https") and _HOST.fullmatch(url.raw_host)
    ported = url.port is None or 1 <= url.port <= 65_535
    if not named or not ported or set("?#") & set(str(url)):
        raise ConfigError(
            "the base address of the billing service (BILLHOOK_API_URL) must be such as "
            "https://billing.example or https://billing.example/api, without a query"
        )
    if url.scheme == "http" and url.host not in ("localhost", "127.0.0.1", "::1"):
        logger.warning("%s is plain http: the tokens can be read on the way there", url.host)
    return str(url).rstrip("/")
