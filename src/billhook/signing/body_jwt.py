"""BodyJWT: a JSON Web Token in a header, with a claim about the body, as Lago sends it.

Source: RFC 7515, RFC 7519. This module parses the token strictly and once; PyJWT's algorithms verify and
make its signature. The algorithm is configured: a token that names another one is malformed.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, ClassVar, Final, Literal, final, get_args

from billhook.errors import ConfigError, InvalidJSON, MissingExtra, SignatureMalformed
from billhook.fields import strict_json
from billhook.signing.algorithms import RSA_SHA256, Algorithm, PublicKey, hmac_algorithm
from billhook.signing.parsing import read_header
from billhook.signing.scheme import Keys, Scheme, Secret, Secrets, SignedContent, check_option, single_secret
from billhook.signing.times import LAST_TIMESTAMP, UNIX

_SharedSecretName = Literal["HS256", "HS512"]
AlgorithmName = Literal["RS256", "ES256", _SharedSecretName]
ClaimHolds = Literal["sha256", "body"]


@final
class BodyJWT(Scheme):
    """A token whose `claim` is the hex SHA-256 of the body, or with `claim_holds="body"` the body's text.

    The token must contain its time of issue (`iat`), unless `replay_protection` is "dedupe-only". It is
    refused after its `exp`, and if `issuer` is given and its `iss` differs. Secrets are PEM, or text for
    HS256 and HS512. A header has at most 8 KB, which also limits a body that is in the token. Needs the
    extra `jwt`.
    """

    name: ClassVar[str] = "body-jwt"

    def __init__(
        self,
        header: str = "X-Webhook-Signature",
        *,
        algorithm: AlgorithmName = "RS256",
        claim: str = "data",
        claim_holds: ClaimHolds = "sha256",
        issuer: str | None = None,
        replay_protection: Literal["dedupe-only"] | None = None,
    ) -> None:
        """Check the options; raise ConfigError, and MissingExtra without PyJWT."""
        # The types of the options are not enforced: they may come from a configuration file.
        check_option("algorithm", algorithm, get_args(AlgorithmName))
        check_option("claim_holds", claim_holds, get_args(ClaimHolds))
        check_option("replay_protection", replay_protection, ("dedupe-only", None))
        self._use_headers(header)
        self._algorithm: Final = _jwt_algorithm(algorithm)
        self._claim: Final = claim
        self._claim_holds: Final = claim_holds
        self._issuer: Final = issuer
        self._timed: Final = replay_protection is None

    @property
    def signs_time(self) -> bool:
        return self._timed

    def load(self, secrets: Secrets) -> Keys:
        return Keys.load(secrets, self._algorithm.load)

    def read(self, headers: Mapping[str, str], body: bytes, event_type: str) -> SignedContent:
        header = self.headers[0]
        jose_header, claims, content, signature = read_token(read_header(headers, header), header)
        # Never the token's choice: an RSA public key could otherwise be used as an HMAC secret. `crit` lists
        # extensions that a reader must understand (RFC 7515, section 4.1.11), and none is understood here.
        if jose_header.get("alg") != self._algorithm.name or "crit" in jose_header:
            raise SignatureMalformed(f"{header} is a token of another kind than {self._algorithm.name}")
        signed_at = _moment(claims, "iat", header)
        if self._timed and signed_at is None:
            raise SignatureMalformed(f"{header} is a token without iat")
        raw = _decoded(signature, header)
        # A token about another body may be authentic, but must not verify this one: without a signature it is
        # a mismatch.
        # In constant time, although the claim is signed: the signature is verified only afterwards.
        claim = claims.get(self._claim)
        about_this = isinstance(claim, str) and hmac.compare_digest(claim.encode(), self._claim_value(body))
        if self._issuer is not None and claims.get("iss") != self._issuer:
            about_this = False
        return SignedContent(
            content.encode(),
            {self._algorithm.name: [raw]} if about_this else {},
            signed_at if self._timed else None,
            ends_at=_moment(claims, "exp", header),
            begins_at=_moment(claims, "nbf", header),
        )

    def _claim_value(self, body: bytes) -> bytes:
        return body if self._claim_holds == "body" else hashlib.sha256(body).hexdigest().encode()

    def sign(
        self, body: bytes, secret: Secret, *, event_type: str, now: datetime, message_id: str | None = None
    ) -> dict[str, str]:
        """Return the header, which signs neither type nor id. Raises ValueError unless the body is text."""
        _, key = single_secret(secret)
        claims: dict[str, object] = {self._claim: self._claim_value(body).decode()}
        if self._issuer is not None:
            claims["iss"] = self._issuer
        if self._timed:
            claims["iat"] = int(UNIX.write(now))
        jose_header = {"alg": self._algorithm.name, "typ": "JWT"}
        content = ".".join(_encoded(json.dumps(part).encode()) for part in (jose_header, claims))
        return {self.headers[0]: f"{content}.{_encoded(self._algorithm.sign(key, content.encode()))}"}


def _jwt_algorithm(name: AlgorithmName) -> Algorithm:
    """Return an algorithm of PyJWT. Raises MissingExtra."""
    try:
        from jwt import InvalidKeyError, get_algorithm_by_name
    except ModuleNotFoundError:
        raise MissingExtra("billhook.signing.BodyJWT", "jwt") from None
    public = name not in get_args(_SharedSecretName)
    own: Any = get_algorithm_by_name(name)

    def prepared(secret: str) -> Any:
        from cryptography.exceptions import UnsupportedAlgorithm

        if not public:
            hmac_algorithm().load(secret)  # refuses what is too short
        try:
            return own.prepare_key(secret)
        except (InvalidKeyError, UnsupportedAlgorithm, ValueError, TypeError):
            raise ConfigError(
                f"a key is not one for {name}: give a PEM of its kind, or text for HS256 and HS512"
            ) from None

    def load(secret: str) -> PublicKey:
        if "PRIVATE KEY" in secret:
            raise ConfigError("a private key was given to verify with: give the public key")
        if name == "RS256":
            RSA_SHA256.load(secret)  # refuses keys that are too weak, which PyJWT accepts
        key = prepared(secret)
        return PublicKey(name, lambda content, signature: bool(own.verify(content, key, signature)), public)

    def sign(secret: str, content: bytes) -> bytes:
        key = prepared(secret)
        if public and not hasattr(key, "sign"):
            raise ConfigError(f"a public key was given to sign with: {name} needs the private one")
        return bytes(own.sign(content, key))

    return Algorithm(name, load, sign, None)


def read_token(text: str, header: str) -> tuple[dict[str, object], dict[str, object], str, str]:
    """Return the head and the claims of a token, its signed content, and its signature, still encoded."""
    content, _, signature = text.rpartition(".")
    parts = content.split(".")
    if len(parts) != 2:
        raise SignatureMalformed(f"{header} is not a token of three parts")
    jose_header, claims = (_object(_decoded(part, header), header) for part in parts)
    return jose_header, claims, content, signature


def _encoded(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _decoded(text: str, header: str) -> bytes:
    """Decode canonical base64url without padding. Raises SignatureMalformed for anything else."""
    # Accept one spelling only: a second one would give the same delivery another key.
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        raw = b""
    if not raw or _encoded(raw) != text:
        raise SignatureMalformed(f"{header} is a token with a part that is not in canonical base64url")
    return raw


def _object(raw: bytes, header: str) -> dict[str, object]:
    try:
        found = strict_json.loads(raw)
    except InvalidJSON:
        found = None
    if not isinstance(found, dict):
        raise SignatureMalformed(f"{header} is a token with a part that is no JSON object")
    return found


def _moment(claims: Mapping[str, object], name: str, header: str) -> datetime | None:
    """Return a claim that is a time in whole seconds; None if the token has none."""
    value = claims.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= LAST_TIMESTAMP:
        raise SignatureMalformed(f"{header} is a token whose {name} is no whole number of seconds since 1970")
    return datetime.fromtimestamp(value, UTC)
