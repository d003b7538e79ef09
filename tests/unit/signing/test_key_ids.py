"""Keys with ids: the example of the signatures' page, and both forms of the secrets."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from billhook import Source
from billhook.errors import ConfigError, SignatureError
from billhook.signing import TimestampedRSA
from support.signing_cases import NOW, rsa_pems

PAGE = Path(__file__).parents[3] / "src" / "billhook" / "signing" / "README.md"
(EXAMPLE,) = re.findall(
    r"<!-- run: key_ids -->\n```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL
)
HEADER = "X-Webhook-Key-Id"
PRIVATE = {"ka": rsa_pems("ka")[0], "kb": rsa_pems("kb")[0]}
PUBLIC = {"ka": rsa_pems("ka")[1], "kb": rsa_pems("kb")[1]}


def of_the_page() -> Source:
    """The source that the page's example makes of two files."""
    for key_id, pem in PUBLIC.items():
        Path(f"{key_id}.pem").write_text(pem)
    made: dict[str, Any] = {}
    exec(EXAMPLE, made)
    source = made["source"]
    assert isinstance(source, Source)
    return source


def by(secrets: Any) -> Callable[[], Source]:
    return lambda: Source("billing", scheme=TimestampedRSA(key_id_header=HEADER), secrets=secrets)


WAYS = {
    "the page's example": of_the_page,
    "a mapping": by(PUBLIC),
    "a list of mappings": by([{"ka": PUBLIC["ka"]}, {"kb": PUBLIC["kb"]}]),
    "a list of one mapping": by([PUBLIC]),
    "a tuple": by(({"ka": PUBLIC["ka"]}, {"kb": PUBLIC["kb"]})),
}


def is_accepted(source: Source, headers: dict[str, str]) -> bool:
    try:
        source.scheme.verify(
            headers, b"{}", source.keys, event_type="PingTest", now=NOW, tolerance_seconds=300
        )
    except SignatureError:
        return False
    return True


@pytest.mark.parametrize("way", WAYS)
def test_a_delivery_is_verified_by_the_key_that_it_names(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    source = WAYS[way]()

    signed = {
        key_id: source.scheme.sign(b"{}", {key_id: pem}, event_type="PingTest", now=NOW)
        for key_id, pem in PRIVATE.items()
    }
    assert [is_accepted(source, headers) for headers in signed.values()] == [True, True]
    assert not is_accepted(source, {**signed["ka"], HEADER: "kb"})  # the control: another's id
    assert not is_accepted(source, {**signed["ka"], HEADER: "kc"})
    assert [list(secret) for secret in source.secret_list] == [["ka"], ["kb"]]
    assert "PUBLIC KEY" not in repr(source)


def test_without_a_header_for_the_id_the_keys_of_a_mapping_are_tried_in_turn() -> None:
    source = Source("billing", scheme=TimestampedRSA(), secrets=PUBLIC)

    signed = [source.scheme.sign(b"{}", pem, event_type="PingTest", now=NOW) for pem in PRIVATE.values()]

    assert [is_accepted(source, headers) for headers in signed] == [True, True]


def test_a_key_without_an_id_is_refused_where_the_sender_names_it() -> None:
    with pytest.raises(ConfigError, match=r"key_id_header needs \{key id: key\} mappings"):
        by([PUBLIC["ka"]])()
