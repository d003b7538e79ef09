"""The client's HTTP: one exchange at a time, bounded in time and size; redirects are not followed.

The client's secrets are removed from text of the service before it is shown. No exception raised here has an
exception of the HTTP library as its cause or context: that would hold the request, and the request holds the
tokens.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.request import getproxies, proxy_bypass

import httpx2
from pydantic import SecretBytes, SecretStr

from billhook.client.operation import AnyOperation
from billhook.client.responses import ApiResponse, ResponseParser
from billhook.client.retries import CallDeadline
from billhook.errors import ApiError, ConfigError, ServiceUnavailable, UnexpectedResponse

logger = logging.getLogger("billhook.client")
_HOST = re.compile(rb"[0-9A-Za-z._:-]+")  # the library accepts other characters, and would look up `a%20b`


def open_client(transport: httpx2.BaseTransport | None) -> httpx2.Client:
    """Return the HTTP client, which reads HTTPS_PROXY, SSL_CERT_FILE and the like. Raises ConfigError.

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


def environment_proxy(base_url: str) -> str:
    """Return which proxy the environment names for this address, in words; empty if there is none.

    Without the proxy's user and password. The HTTP library reads the same variables, NO_PROXY too.
    """
    url = httpx2.URL(base_url)
    proxies = getproxies()
    names = [name for name in (url.scheme, "all") if proxies.get(name)]
    if not names or proxy_bypass(url.netloc.decode("ascii")):
        return ""
    address = proxies[names[0]]
    proxy = httpx2.URL(address if "://" in address else f"http://{address}")
    return f"the proxy {proxy.netloc.decode('ascii')} of {names[0].upper()}_PROXY"


def parse_base_url(base_url: str) -> str:
    """Return the base URL without a trailing slash. Raises ConfigError, which does not repeat the URL."""
    try:
        url = httpx2.URL(base_url)
        # Encode it as the socket does, which fails for empty and long labels.
        url.raw_host.decode("ascii").encode("idna")
    except (httpx2.InvalidURL, TypeError, UnicodeError):
        url = httpx2.URL()
    setting = "the base address of the billing service (BILLHOOK_API_URL)"
    if url.userinfo:
        raise ConfigError(f"{setting} has a user name or password in it: leave that out")
    named = url.scheme in ("http", "https") and _HOST.fullmatch(url.raw_host)
    ported = url.port is None or 1 <= url.port <= 65_535
    if not named or not ported or set("?#") & set(str(url)):
        examples = "https://billing.example or https://billing.example/api"
        raise ConfigError(f"{setting} must be such as {examples}, without a query")
    if url.scheme == "http" and url.host not in ("localhost", "127.0.0.1", "::1"):
        logger.warning("%s is plain http: the tokens can be read on the way there", url.host)
    return str(url).rstrip("/")


# A page of 1000 events of a few KB each fits; a larger response must not fill the memory.
MAX_ANSWER_BYTES = 32 * 1024 * 1024
_HEADERS = {
    "Accept": "application/json",
    "Accept-Encoding": "gzip, deflate",  # the encodings that the library decodes without optional packages
    "User-Agent": "billhook",
}
# Errors before the first byte of the request is sent.
_NOT_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.ProxyError)


@dataclass(frozen=True, slots=True)
class ApiCall:
    """A call's request without the credentials, and its deadline, which the login and each attempt share."""

    operation: AnyOperation
    address: str
    deadline: CallDeadline
    query: Mapping[str, str] | None
    body: SecretBytes
    """Hidden where a traceback shows variables; empty for a request without one."""


@dataclass(eq=False, repr=False)
class Transport:
    """Sends requests to one base URL; safe for any number of threads."""

    base_url: str
    """Without a slash at its end."""
    client_id: SecretStr
    parser: ResponseParser
    http: httpx2.Client
    proxy: str = ""
    """What is between, in words; empty for a direct connection."""

    def exchange(self, call: ApiCall, bearer: SecretStr | None) -> ApiResponse | ApiError:
        """Send a request; return its response, or the error that occurred instead.

        Raises ValueError if its parameters do not fit into a URL, ConfigError if the client is closed.
        """
        result = None
        request = self._request(call, bearer)
        try:
            if not self.http.is_closed:
                with contextlib.closing(self.http.send(request, stream=True)) as response:
                    result = _read(call, response)
        except httpx2.RequestError as error:
            # The text of a time-out is only "timed out", or empty.
            reason = "it took too long" if isinstance(error, httpx2.TimeoutException) else str(error)
            way = f"{self.base_url}, through {self.proxy}" if self.proxy else self.base_url
            problem = f"{way}: {self.parser.redactor.clean(reason, 200) or type(error).__name__}"
            return ServiceUnavailable(call.operation.name, problem, sent=not isinstance(error, _NOT_SENT))
        except RuntimeError as error:
            # Another thread has closed the client since; the library sends nothing then.
            if type(error) is not RuntimeError or not self.http.is_closed:
                raise
        if result is None:
            raise ConfigError("this BillingClient is closed: make a new one")
        if isinstance(result, ApiError):
            return result
        logger.debug("%s: %d, %d bytes", call.operation.name, result.status, len(result.body))
        return self.parser.error(call.operation, result) or result

    def _request(self, call: ApiCall, bearer: SecretStr | None) -> httpx2.Request:
        # Build the address before the headers exist: a traceback may show variables, and the headers hold the
        # token.
        url = _url(self.base_url + call.address, call)
        headers = {**_HEADERS, "x-api-key": self.client_id.get_secret_value()}
        if bearer is not None:
            headers["Authorization"] = f"Bearer {bearer.get_secret_value()}"
        if call.body:
            headers["Content-Type"] = "application/json"
        seconds = call.deadline.timeout_seconds
        limits = {"connect": seconds, "pool": seconds, "read": call.deadline, "write": call.deadline}
        content, extra = call.body.get_secret_value(), {"timeout": limits}
        return httpx2.Request(call.operation.method, url, headers=headers, content=content, extensions=extra)


def _url(address: str, call: ApiCall) -> httpx2.URL:
    try:
        # `params`, even as None, would replace the query that is in the address already.
        return httpx2.URL(address, params=call.query) if call.query else httpx2.URL(address)
    except httpx2.InvalidURL:
        problem = "is too long: shorten its parameters"
    except UnicodeEncodeError:
        problem = "cannot be made: there is half a surrogate pair in its parameters"
    raise ValueError(f"the address of {call.operation.name} {problem}")


def _read(call: ApiCall, response: httpx2.Response) -> ApiResponse | ApiError:
    body = bytearray()
    problem = ""
    try:
        # Counted after decompression: a small response may decompress to gigabytes.
        for part in response.iter_bytes():
            body += part
            if len(body) > MAX_ANSWER_BYTES:
                problem = f"it is over {MAX_ANSWER_BYTES} bytes"
                break
            if not call.deadline.remaining_seconds:
                return ServiceUnavailable(call.operation.name, "it did not end in time", sent=True)
    except httpx2.DecodingError:
        problem = "it cannot be decompressed"
    status, headers = response.status_code, response.headers
    if problem:
        return UnexpectedResponse(call.operation.name, problem, status=status, excerpt="")
    return ApiResponse(status, headers.get("Content-Type", ""), headers.get("Retry-After"), bytes(body))
