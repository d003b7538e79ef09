"""RequestHeaders: the headers of one webhook request, the same from a WSGI environ and from an ASGI scope."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Self

__all__ = ["RequestHeaders"]

# Credentials that a proxy or a sender may add are not stored. Signatures are: they are valid for these bytes
# only, and an operator needs them to settle a dispute with the sender.
_CREDENTIAL = re.compile(r"AUTH|COOKIE|TOKEN|SECRET|PASSW|CREDENTIAL|SESSION|API_?KEY|ACCESS_?KEY|JWT")


class RequestHeaders(dict[str, str]):
    """Values by lower-case name. Header lines with the same name are joined by a comma, as WSGI servers do.

    Strict parsers then see one malformed value, instead of one of two that an attacker could choose.
    """

    __slots__ = ()

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value of a header; case, and whether `name` has dashes or underscores, is ignored."""
        key = name.lower()
        if "_" in key and key not in self:
            key = key.replace("_", "-")  # how a WSGI server spells it, and so perhaps a configuration
        return dict.get(self, key, default)

    @classmethod
    def from_environ(cls, environ: Mapping[str, Any]) -> Self:
        """Return the headers in a WSGI environ."""
        headers = cls({_from_cgi(key): text for key, text in environ.items() if key.startswith("HTTP_")})
        if "CONTENT_TYPE" in environ:
            headers["content-type"] = environ["CONTENT_TYPE"]
        return headers

    @classmethod
    def from_asgi(cls, pairs: Iterable[tuple[bytes, bytes]]) -> Self:
        """Return the headers of an ASGI scope."""
        headers = cls()
        for raw_name, raw_value in pairs:
            name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
            headers[name] = f"{headers[name]},{value}" if name in headers else value
        return headers

    def stored(self) -> str:
        """Return the headers to store, as JSON, without credentials, for `billhook deliveries show`."""
        kept = {}
        for name, value in self.items():
            key = _stored_name(name)
            if key is not None:
                kept[key] = value
        return json.dumps(kept)


@lru_cache(256)
def _from_cgi(key: str) -> str:
    return key[5:].replace("_", "-").lower()


@lru_cache(256)
def _stored_name(name: str) -> str | None:
    """Return the name under which a header is stored, in CGI's spelling; None if it is not stored."""
    key = name.upper().replace("-", "_")
    # An ASGI server may pass X_Webhook_Type beside X-Webhook-Type: it must not take the real one's place.
    return None if "_" in name or key == "CONTENT_LENGTH" or _CREDENTIAL.search(key) else key
