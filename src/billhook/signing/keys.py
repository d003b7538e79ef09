"""Keys: the decoded secrets of one source, checked once at start and never shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Final, Protocol, TypeAlias, final

from billhook.errors import ConfigError

__all__ = ["Algorithm", "Key", "Keys", "Secret", "Secrets", "secret_text", "single_secret"]

Secret: TypeAlias = str | Mapping[str, str]
"""A secret or PEM, or {key id: PEM} where the sender names its key."""

Secrets: TypeAlias = Sequence[Secret] | Mapping[str, str]


class Key(Protocol):
    """One usable key; it verifies signatures and does not reveal itself."""

    @property
    def algorithm(self) -> str:
        """The name under which a claim lists the signatures that this key can judge."""
        ...

    @property
    def public(self) -> bool:
        """True for a public key, which is expensive to verify with."""
        ...

    def matches(self, content: bytes, signatures: Sequence[bytes]) -> bool:
        """True when any of `signatures` was made over `content` with this key's secret."""
        ...


class Algorithm(Protocol):
    """How one kind of signature is loaded, judged and made."""

    name: ClassVar[str]
    signature_bytes: ClassVar[int | None]
    most_signatures: ClassVar[int]
    """How many are taken in one request."""

    def load(self, secret: str) -> Key:
        """The key to verify with; ConfigError or WeakSecret when it is not fit."""
        ...

    def sign(self, secret: str, content: bytes) -> bytes:
        """The raw signature; `secret` is the private half where there are two."""
        ...


@final
class Keys:
    """The keys of one source; neither repr() nor str() shows them."""

    __slots__ = ("_keys",)

    def __init__(self, keys: Sequence[tuple[str | None, Key]]) -> None:
        self._keys: Final = tuple(keys)

    @classmethod
    def load(cls, secrets: Secrets, load_one: Callable[[str], Key], *, need_ids: bool = False) -> Keys:
        """Load each secret with `load_one`; a {key id: secret} mapping stands for its items."""
        pairs = _pairs(secrets)
        if not pairs:
            raise ConfigError("no secret was given: list at least one")
        if need_ids and any(key_id is None for key_id, _ in pairs):
            raise ConfigError("key_id_header needs {key id: key} mappings, got a key without an id")
        ids = [key_id for key_id, _ in pairs if key_id is not None]
        if len(set(ids)) < len(ids):
            raise ConfigError("a key id is given twice: each key needs its own")
        return cls([(key_id, load_one(secret_text(secret))) for key_id, secret in pairs])

    def accept(
        self,
        content: bytes,
        signatures: Mapping[str, Sequence[bytes]],
        key_id: str | None,
        *,
        public: bool = True,
    ) -> bool:
        """True when a key (the one called `key_id`, if that is not None) made one of `signatures`.

        `public=False` leaves public keys out. Every candidate is judged, with no way out at the first that
        fits: the time taken tells nothing.
        """
        found = False
        for own_id, key in self._keys:
            if (key_id is None or key_id == own_id) and (public or not key.public):
                candidates = signatures.get(key.algorithm)
                if candidates:
                    found |= key.matches(content, candidates)
        return found

    def __len__(self) -> int:
        return len(self._keys)

    def __repr__(self) -> str:
        return f"<Keys: {len(self._keys)}>"


def secret_text(secret: object) -> str:
    """`secret` if it is text; the error names its type and never its value."""
    if not isinstance(secret, str):
        raise ConfigError(f"a secret must be a str, got {type(secret).__name__}")
    if any("\ud800" <= character <= "\udfff" for character in secret):
        raise ConfigError("a secret holds characters that are not valid Unicode text")
    return secret


def single_secret(secret: Secret) -> tuple[str | None, str]:
    """The one secret to sign with, and its key id when it comes as {key id: secret}."""
    if not isinstance(secret, Mapping):
        return None, secret_text(secret)
    if len(secret) != 1:
        raise ConfigError(f"sign with one key, got a mapping of {len(secret)}")
    ((key_id, text),) = _pairs(secret)
    return key_id, secret_text(text)


def _pairs(secrets: Secrets) -> list[tuple[str | None, object]]:
    given: object = secrets
    if isinstance(given, Mapping):
        return [(_key_id(key_id), secret) for key_id, secret in given.items()]
    if isinstance(given, str | bytes | bytearray) or not isinstance(given, Sequence):
        raise ConfigError(f"secrets must be a list, newest first, got {type(given).__name__}")
    pairs: list[tuple[str | None, object]] = []
    for secret in given:
        pairs += _pairs(secret) if isinstance(secret, Mapping) else [(None, secret)]
    return pairs


def _key_id(key_id: object) -> str:
    if not isinstance(key_id, str) or not key_id:
        raise ConfigError(f"a key id must be a str and not empty, got {type(key_id).__name__}")
    return key_id
