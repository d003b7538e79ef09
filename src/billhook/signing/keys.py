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
        """The name of the algorithm whose signatures this key can verify."""
        ...

    @property
    def public(self) -> bool:
        """True for a public key, which is expensive to verify with."""
        ...

    def matches(self, content: bytes, signatures: Sequence[bytes]) -> bool:
        """Return True if any of `signatures` was made over `content` with this key's secret."""
        ...


class Algorithm(Protocol):
    """One kind of signature: loads its keys, and signs."""

    name: ClassVar[str]
    signature_bytes: ClassVar[int | None]
    most_signatures: ClassVar[int]
    """The maximum number of signatures in one request."""

    def load(self, secret: str) -> Key:
        """Return the key to verify with; ConfigError or WeakSecret if it is unusable."""
        ...

    def sign(self, secret: str, content: bytes) -> bytes:
        """Return the raw signature; `secret` is the private key of a pair."""
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
        """Return True if a key (the one with `key_id`, unless that is None) made one of `signatures`.

        `public=False` leaves public keys out. All candidates are verified even after a match, so that the
        time taken reveals nothing.
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
    """Return `secret` if it is text; ConfigError otherwise, which never contains its value."""
    if not isinstance(secret, str):
        raise ConfigError(f"a secret must be a str, got {type(secret).__name__}")
    # Half a surrogate pair cannot be encoded: the error would come at the first delivery.
    if any("\ud800" <= character <= "\udfff" for character in secret):
        raise ConfigError("a secret holds characters that are not valid Unicode text")
    return secret


def single_secret(secret: Secret) -> tuple[str | None, str]:
    """Return the key id, or None, and the secret to sign with; ConfigError for several secrets."""
    if not isinstance(secret, Mapping):
        return None, secret_text(secret)
    if len(secret) != 1:
        raise ConfigError(f"sign with one key, got a mapping of {len(secret)}")
    ((key_id, text),) = _pairs(secret)
    return key_id, secret_text(text)


def _pairs(secrets: Secrets) -> list[tuple[str | None, object]]:
    value: object = secrets
    if isinstance(value, Mapping):
        return [(_key_id(key_id), secret) for key_id, secret in value.items()]
    # A text is a sequence, too: each of its characters would become a secret.
    if isinstance(value, str | bytes | bytearray) or not isinstance(value, Sequence):
        raise ConfigError(f"secrets must be a list, newest first, got {type(value).__name__}")
    pairs: list[tuple[str | None, object]] = []
    for secret in value:
        pairs += _pairs(secret) if isinstance(secret, Mapping) else [(None, secret)]
    return pairs


def _key_id(key_id: object) -> str:
    if not isinstance(key_id, str) or not key_id:
        raise ConfigError(f"a key id must be a str and not empty, got {type(key_id).__name__}")
    return key_id
