"""What got around a secret: accepted where it is meant, else named at the start and by the finder."""

from __future__ import annotations

import base64

import pytest

from billhook.errors import ConfigError
from billhook.settings import Settings, read_secrets_file
from billhook.signing import StandardWebhooks, TimestampedHMAC
from billhook.signing.search import search
from billhook.signing.secret_text import plain_secret
from support.signing_cases import NOW, TEXT_SECRET, rsa_pems

BODY = b"{}"
KEY = bytes(range(200, 232))
WHSEC = "whsec_" + base64.b64encode(KEY).decode()
SURROUNDED = {
    "a byte order mark (U+FEFF)": "\ufeff{}",
    "an invisible character (U+200B, zero width space)": "{}\u200b",
    "an invisible character (U+00A0, no-break space)": "{}\u00a0",
    "an invisible character (U+0000, a control character)": "{}\0",
    "an invisible character (U+FE0F, variation selector-16)": "{}\ufe0f",
    "an invisible character (U+3164, hangul filler)": "\u3164{}",
    "white space around it": " {}\r\n",
    "quotes around it": '"{}"',
    "quotes around it and white space around it": "'{} '",
    "a byte order mark (U+FEFF) and quotes around it": "\ufeff\u201c{}\u201d",
    "a backslash and an n at its end": "{}\\r\\n",
}


@pytest.mark.parametrize("what", SURROUNDED)
def test_what_surrounds_a_secret_is_named_at_the_start_and_left_out_by_the_finder(what):
    for scheme, secret in ((TimestampedHMAC(), TEXT_SECRET), (StandardWebhooks(), WHSEC)):
        given = SURROUNDED[what].format(secret)
        headers = scheme.sign(BODY, secret, event_type="PingTest", now=NOW, message_id=None)

        with pytest.raises(ConfigError) as refused:
            scheme.load([given])
        (found,) = search(headers, BODY, [given], captured_at=NOW).schemes

        assert str(refused.value) == f"a secret has {what}, which would be part of the key: remove it"
        assert found.secret_change == f"leave out {what}"
        assert secret not in f"{refused.value}{found}"


def test_a_secret_that_nothing_surrounds_is_left_alone():
    pem = rsa_pems("case")[1]
    for secret in (
        TEXT_SECRET,
        WHSEC,
        'a "quoted" word',
        '"',
        "'begins so",
        "p\u00e4ss \u2713",
        pem,
        pem.replace("\n", "\r\n"),
    ):
        assert plain_secret(secret) == (secret, "")


def test_url_safe_base64_is_accepted_behind_its_prefix_alone():
    url_safe = base64.urlsafe_b64encode(b"\xfb\xff" * 16).decode()
    headers = StandardWebhooks().sign(
        BODY, "whsec_" + base64.b64encode(b"\xfb\xff" * 16).decode(), event_type="PingTest", now=NOW
    )

    keys = StandardWebhooks().load([f"whsec_{url_safe}"])
    with pytest.raises(ConfigError, match="write whsec_ before it"):
        StandardWebhooks().load([url_safe])
    with pytest.raises(ConfigError, match="is not valid base64: copy it whole") as refused:
        StandardWebhooks().load(["whsec_!!"])
    assert "write whsec_" not in str(refused.value)

    StandardWebhooks().verify(headers, BODY, keys, event_type="PingTest", now=NOW, tolerance_seconds=300)


def test_a_version_before_a_secret_is_left_out():
    headers = StandardWebhooks().sign(BODY, "v1," + WHSEC, event_type="PingTest", now=NOW)

    for secrets in (
        ["v1," + WHSEC],
        Settings.from_mapping({"BILLHOOK_SECRETS": f"v1,{WHSEC},v1,{WHSEC}"}).read_secrets(),
    ):
        keys = StandardWebhooks().load(list(secrets))
        StandardWebhooks().verify(headers, BODY, keys, event_type="PingTest", now=NOW, tolerance_seconds=300)


def test_an_option_in_quotes_is_refused_and_a_file_may_begin_with_a_mark(tmp_path):
    with pytest.raises(ConfigError, match="BILLHOOK_SECRETS stands in quotes") as refused:
        Settings.from_mapping({"BILLHOOK_SECRETS": f'"{WHSEC},{WHSEC}"'})
    file = tmp_path / "secret.txt"
    file.write_text(f"\ufeff{TEXT_SECRET}\n", encoding="utf-8")
    file.chmod(0o600)

    assert WHSEC not in str(refused.value)
    assert read_secrets_file(str(file)) == (TEXT_SECRET,)


def test_a_text_that_is_the_key_of_standard_webhooks_is_told_how_to_write():
    text = b"a text-secret, of 24 bytes"
    encoded = "whsec_" + base64.b64encode(text).decode()
    headers = StandardWebhooks().sign(BODY, encoded, event_type="PingTest", now=NOW)

    with pytest.raises(ConfigError, match=r"echo whsec_\$\(printf %s TEXT \| base64 -w0\)"):
        StandardWebhooks().load([text.decode()])
    (found,) = search(headers, BODY, [text.decode()], captured_at=NOW).schemes

    assert found.secret_change == "write it as whsec_ and the base64 of its characters"
