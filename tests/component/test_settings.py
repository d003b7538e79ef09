"""Options: one table, parsed once; a mistake is told with its name, its value, the limit and no secret."""

from __future__ import annotations

import hmac
import os
from datetime import UTC, datetime
from itertools import product

import pytest

from billhook import Billhook, Source
from billhook.basics.file_modes import access_by_others
from billhook.errors import ConfigError, MissingSecret, WeakSecret
from billhook.extension import default_source, get_settings, get_state
from billhook.settings import OPTIONS, Settings, read_secrets_file
from billhook.signing import BodyHMAC, SignatureTemplate, TimestampedHMAC
from billhook.signing.source import TYPE_HEADER
from billhook.standalone import create_app
from support.apps import bare_app
from support.inbox_view import incoming, open_inbox
from support.signing import OTHER_SECRET, SECRET
from support.signing_cases import rsa_pems

HIDDEN = "correct-horse-battery-staple"
NO_HEADERS = ("X Type", "X-Type:", "Größe", "-x", "a" * 65)
NO_PATHS = (".", "a..b", "type.", "a\nb", "a" * 257)


def start(tmp_path, **config):
    app = bare_app(tmp_path, **config)
    Billhook().init_app(app)
    app.extensions["billhook"].close()
    return app


def test_a_bad_value_is_refused_with_its_name_and_its_limit():
    for key, wrong, told in (
        ("BILLHOOK_SIGNATURE", "md5", "is 'md5': it must be one of standard-webhooks, timestamped-hmac, "),
        ("BILLHOOK_SIGNATURE", None, "is None: it must be one of"),
        ("BILLHOOK_ENGINE", "huey", "is 'huey': it must be one of thread, worker, celery, rq, inline"),
        ("BILLHOOK_REPLAY_PROTECTION", "none", "is 'none': it must be one of dedupe-only"),
        ("BILLHOOK_TOLERANCE_SECONDS", 0, "is 0: it must be a number from 1 to 86400"),
        ("BILLHOOK_TOLERANCE_SECONDS", 86_401, "is 86401: it must be a number from 1 to 86400"),
        ("BILLHOOK_TOLERANCE_SECONDS", 1.5, "is 1.5: it must be a whole number"),
        ("BILLHOOK_TOLERANCE_SECONDS", True, "is True: it must be a number"),
        ("BILLHOOK_MAX_BODY_BYTES", "many", "is 'many': it must be a number from 1 to 16777216"),
        ("BILLHOOK_MAX_BODY_BYTES", 10**400, "is 10+: it must be a number from 1"),
        ("BILLHOOK_DEADLINE_SECONDS", "nan", "is 'nan': it must be a number from 0.1 to 60"),
        ("BILLHOOK_DEADLINE_SECONDS", "inf", "is 'inf': it must be a number from 0.1 to 60"),
        ("BILLHOOK_DEADLINE_SECONDS", [1], r"is \[1\]: it must be a number"),
        ("BILLHOOK_LEASE_SECONDS", 0.1, "is 0.1: it must be a number from 0.5 to 86400"),
        ("BILLHOOK_RETENTION_DAYS", -1, "is -1: it must be a number from 0 to 36500"),
        ("BILLHOOK_KEY_DAYS", 6, "is 6: it must be a number from 7 to 36500"),
        ("BILLHOOK_SIGNATURE_PREFIX", 1, "must be text, got int"),
        ("BILLHOOK_RETRY_SCHEDULE_SECONDS", "10,soon", "is 'soon': it must be a number from 0 to 2678400"),
        ("BILLHOOK_RETRY_SCHEDULE_SECONDS", [-1], "is -1: it must be a number from 0"),
        ("BILLHOOK_BACKLOG_LIMIT", 0, "is 0: it must be a number from 1 to 1000000000"),
        ("BILLHOOK_HANDLERS", [1], "holds a int: every item must be text"),
        (
            "BILLHOOK_SECRETS",
            [12345],
            r"holds a int: every item must be text \(quote it in the environment\)",
        ),
        ("BILLHOOK_SECRETS", 12345, "holds a int: every item must be text"),
        ("BILLHOOK_SECRETS", {"a": HIDDEN}, "holds a dict: every item must be text"),
        ("BILLHOOK_SECRETS_FILE", 3, "must be text, got int"),
        ("BILLHOOK_INBOX_URL", 3, "must be text, got int"),
        ("BILLHOOK_SIGNATURE_HEADER", b"x", "must be text, got bytes"),
        *(("BILLHOOK_TYPE_HEADER", name, "is .*: it must be the name of a header") for name in NO_HEADERS),
        *(("BILLHOOK_TYPE_FIELD", path, "is .*: it must be the path of a field, as ") for path in NO_PATHS),
    ):
        with pytest.raises(ConfigError, match=f"^{key} {told}") as caught:
            Settings.from_mapping({key: wrong})

        assert HIDDEN not in str(caught.value)
        assert "12345" not in str(caught.value)


ALGORITHM, PREFIX = "BILLHOOK_SIGNATURE_ALGORITHM", "BILLHOOK_SIGNATURE_PREFIX"
HEADER, TIME_HEADER = "BILLHOOK_SIGNATURE_HEADER", "BILLHOOK_TIMESTAMP_HEADER"
NO_SECRET = r"'default' has no secret: set .*_FILE \(in a Flask app before init_app\), or pass"
WRONG = [
    (ConfigError, {"BILLHOOK_SECRET": HIDDEN}, "is no option of billhook: did you mean BILLHOOK_SECRETS"),
    (ConfigError, {"BILLHOOK_NOPE": "x"}, "BILLHOOK_NOPE is no option of billhook: `billhook options`"),
    (ConfigError, {"BILLHOOK_LEASE_SECONDS": HIDDEN}, "is a value that looks like a secret"),
    (ConfigError, {"BILLHOOK_LEASE_SECONDS": "30 seconds"}, "is '30 seconds': it must be a number"),
    (
        ConfigError, {"BILLHOOK_SIGNATURE": "timestamped-hmac", ALGORITHM: "sha512"},
        "algorithm 'sha512' is not one of hmac-sha256, hmac-sha512",
    ),
    *((MissingSecret, {"BILLHOOK_SECRETS": none}, NO_SECRET) for none in (None, "", (), [], " , ")),
    *(
        (WeakSecret, {"BILLHOOK_SECRETS": [SECRET, weak]}, "a secret of .* bytes is too short: use at least")
        for weak in ("whsec_MTIz", "MTIzNDU2Nzg5MDEyMzQ1")
    ),
    *(
        (
            ConfigError, {"BILLHOOK_SIGNATURE": scheme, key: text},
            f"{scheme} has no {what} to choose: unset {key}",
        )
        for scheme, key, what in (
            ("standard-webhooks", ALGORITHM, "algorithm"), ("timestamped-rsa", ALGORITHM, "algorithm"),
            ("standard-webhooks", PREFIX, "prefix"), ("standard-webhooks", HEADER, "header"),
            ("standard-webhooks", TIME_HEADER, "timestamp header"),
            ("timestamped-hmac", TIME_HEADER, "timestamp header"),
            ("body-hmac", TIME_HEADER, "timestamp header"),
        )
        for text in ("X-Mine", "hmac-sha512", *([""] if what == "prefix" else []))
    ),
]  # fmt: skip


def test_an_app_with_a_wrong_option_does_not_start(tmp_path):
    for error, config, told in WRONG:
        with pytest.raises(error, match=told) as caught:
            start(tmp_path, **config)
        assert not [each for each in (HIDDEN, "MTIz") if each in str(caught.value)]


def test_keys_without_the_prefix_are_ignored(tmp_path):
    assert start(tmp_path, BILLING="x", SECRET_KEY="y", billhook_secret="z")


def test_no_secret_is_in_any_text_of_a_running_app(tmp_path):
    secret = SECRET.removeprefix("whsec_")
    app = start(tmp_path, BILLHOOK_SECRETS=[SECRET])
    app_state = app.extensions["billhook"]
    source = Source("default", secrets=[SECRET])

    texts = [
        repr(Settings.from_mapping(app.config)),
        repr(source),
        repr(source.keys),
        repr(app_state),
        repr(app_state.settings),
        repr(app_state.inbox),
    ]

    assert not [text for text in texts if secret in text]


def test_the_password_of_an_inbox_url_is_in_no_text(tmp_path, caplog):
    url = f"postgresql+psycopg://billing:{HIDDEN}@127.0.0.1:1/billing"

    start(tmp_path, BILLHOOK_INBOX_URL=url)

    assert "the inbox postgresql+psycopg://billing:***@127.0.0.1:1/billing failed" in caplog.text
    assert HIDDEN not in caplog.text
    assert HIDDEN not in repr(Settings.from_mapping({"BILLHOOK_INBOX_URL": url}))


def test_lists_may_be_lists_or_comma_separated():
    for written, schedule in (
        ("10,60", (10.0, 60.0)),
        (" 1 , 2.5 ,", (1.0, 2.5)),
        ([1, "2"], (1.0, 2.0)),
        (5, (5.0,)),
        ("", ()),
        ((), ()),
        (None, ()),
    ):
        settings = Settings.from_mapping({"BILLHOOK_RETRY_SCHEDULE_SECONDS": written})

        assert settings.retry_schedule_seconds == schedule


def test_every_option_has_help_and_accepts_its_default():
    for option in OPTIONS:
        assert option.parse(option.key, option.default) == option.default
        assert option.help.endswith("."), option.key
        assert option.key == "BILLHOOK_" + option.attribute.upper()
        if option.default_text:
            assert option.parse(option.key, option.default_text) == option.default


def test_a_mounted_app_falls_back_to_the_environment(tmp_path, monkeypatch):
    environ = {
        "BILLHOOK_SECRETS": f"{SECRET},{OTHER_SECRET}", "BILLHOOK_TOLERANCE_SECONDS": "60",
        "BILLHOOK_API_URL": "http://127.0.0.1:1", "BILLHOOK_ENGINE": "inline", "BILLHOOK_LEASE_SECONDS": "7",
        "FLASK_BILLHOOK_LEASE_SECONDS": "9", "BILLHOOK_TEST_THING": "ours",
    }  # fmt: skip
    for name, text in environ.items():
        monkeypatch.setenv(name, text)
    app = bare_app(tmp_path, BILLHOOK_ENGINE="worker", BILLHOOK_INBOX_URL=None)
    del app.config["BILLHOOK_SECRETS"]
    app.config.from_prefixed_env()

    settings = get_settings(app)

    assert settings.secrets == (SECRET, OTHER_SECRET)
    assert (settings.tolerance_seconds, settings.api_url) == (60, "http://127.0.0.1:1")
    assert (settings.engine, settings.lease_seconds) == ("worker", 9)  # the config's, and FLASK_'s by it
    assert settings.inbox_url is None


@pytest.mark.parametrize("config", [{"BILLHOOK_SECRETS": [SECRET]}, {"BILLHOOK_SECRETS_FILE": "file"}])
def test_secrets_in_the_config_override_secrets_in_the_environment(tmp_path, monkeypatch, config):
    monkeypatch.setenv("BILLHOOK_SECRETS_FILE", "/elsewhere")
    monkeypatch.setenv("BILLHOOK_SECRETS", OTHER_SECRET)
    app = bare_app(tmp_path)
    del app.config["BILLHOOK_SECRETS"]
    app.config.update(config)

    settings = get_settings(app)

    assert [settings.secrets, settings.secrets_file] == [
        tuple(config.get("BILLHOOK_SECRETS", ())), config.get("BILLHOOK_SECRETS_FILE"),
    ]  # fmt: skip
    del app.config["BILLHOOK_SECRETS" if "BILLHOOK_SECRETS" in config else "BILLHOOK_SECRETS_FILE"]
    with pytest.raises(ConfigError, match="set BILLHOOK_SECRETS or BILLHOOK_SECRETS_FILE, not both"):
        get_settings(app)


def test_a_mounted_app_refuses_a_name_of_the_environment_that_is_no_option(tmp_path, monkeypatch):
    monkeypatch.setenv("BILLHOOK_TOLERENCE_SECONDS", "60")

    with pytest.raises(ConfigError, match="did you mean BILLHOOK_TOLERANCE_SECONDS"):
        Billhook(bare_app(tmp_path))


def test_an_environment_that_is_given_is_all_that_a_standalone_app_reads(tmp_path, monkeypatch):
    monkeypatch.setenv("BILLHOOK_TOLERANCE_SECONDS", "60")
    monkeypatch.chdir(tmp_path)

    app = create_app({"BILLHOOK_SECRETS": SECRET})

    assert get_state(app).settings.tolerance_seconds == 300
    get_state(app).close()


# --- a file of secrets ----------------------------------------------------------------------------


BLOCK = "-----BEGIN PUBLIC KEY-----\nAAAA\n\nBBBB\n-----END PUBLIC KEY-----\n"
WITH_EQUALS_SIGNS = ("QUJDREVGR0hJSktMTU5PUA==", "whsec_QUJDREVGR0hJSktMTU5PUA==", "a=b1234567890abcde")
LINE_OF_AN_ENV_FILE = (
    "has NAME=value on line 3, as an .env file has: write the secret alone on its line, without a name$"
)


@pytest.mark.parametrize(
    ("content", "secrets"),
    [
        (f"# newest first\n\n  {OTHER_SECRET}  \n{SECRET}\n", (OTHER_SECRET, SECRET)),
        (f"{BLOCK}\n{BLOCK}", (BLOCK, BLOCK)),
        *((f"{secret}\n", (secret,)) for secret in WITH_EQUALS_SIGNS),
    ],
)
def test_secrets_may_be_in_a_file_one_a_line_or_as_pem_blocks(tmp_path, content, secrets):
    (tmp_path / "secrets").write_text(content)

    assert read_secrets_file(str(tmp_path / "secrets")) == secrets


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (f"-----BEGIN PUBLIC KEY-----\n{HIDDEN}\n".encode(), "holds a PEM block without its END line"),
        (f"# theirs\n\nBILLHOOK_SECRETS={HIDDEN}\n".encode(), LINE_OF_AN_ENV_FILE),
        (f"# theirs\n\nexport BILLHOOK_SECRETS = '{HIDDEN}'\n".encode(), LINE_OF_AN_ENV_FILE),
        (b"\xff\xfe", "secrets'.* cannot be read: it is not UTF-8"),
        (None, "secrets'.* cannot be read: No such file"),
    ],
)
def test_a_file_that_holds_no_secrets_is_named_and_its_content_is_not(tmp_path, content, told):
    if content is not None:
        (tmp_path / "secrets").write_bytes(content)

    with pytest.raises(ConfigError, match=told) as caught:
        read_secrets_file(str(tmp_path / "secrets"))

    assert HIDDEN not in str(caught.value)


def test_an_empty_file_of_secrets_is_no_secret(tmp_path):
    (tmp_path / "secrets").write_text("# none yet\n")

    told = r"'default' has no secret: write it into BILLHOOK_SECRETS_FILE, '.*secrets', which holds none"
    with pytest.raises(MissingSecret, match=told):
        start(tmp_path, BILLHOOK_SECRETS=[], BILLHOOK_SECRETS_FILE=str(tmp_path / "secrets"))


# --- schemes --------------------------------------------------------------------------------------

TEXT_SECRET = "a-shared-secret-of-32-characters"


def test_the_scheme_is_chosen_by_configuration(tmp_path):
    hmac_options = {"BILLHOOK_SIGNATURE": "timestamped-hmac", "BILLHOOK_SECRETS": [TEXT_SECRET]}
    body_options = {"BILLHOOK_SIGNATURE": "body-hmac", "BILLHOOK_REPLAY_PROTECTION": "dedupe-only"}
    for config, scheme in (
        ({"BILLHOOK_SIGNATURE": "standard-webhooks"}, "<StandardWebhooks: webhook-id, "),
        (hmac_options, "<TimestampedHMAC: X-Webhook-Signature>"),
        (hmac_options | {"BILLHOOK_SIGNATURE_HEADER": "X-Mine"}, "<TimestampedHMAC: X-Mine>"),
        (body_options | {"BILLHOOK_SECRETS": [TEXT_SECRET]}, "<BodyHMAC: X-Webhook-Signature>"),
        (
            {
                "BILLHOOK_SIGNATURE": "timestamped-rsa",
                "BILLHOOK_SECRETS": [rsa_pems("case")[1]],
                "BILLHOOK_TIMESTAMP_HEADER": "X-When",
            },
            "<TimestampedRSA: X-When, X-Webhook-Signature>",
        ),
    ):
        settings = Settings.from_mapping(bare_app(tmp_path, **config).config)

        assert repr(default_source(settings).scheme).startswith(scheme)


DEDUPE_ONLY = {"BILLHOOK_SIGNATURE": "body-hmac", "BILLHOOK_REPLAY_PROTECTION": "dedupe-only"}


@pytest.mark.parametrize(
    ("config", "prefix", "content", "digest"),
    [
        (DEDUPE_ONLY, "sha256=", b"{}", "sha256"),
        (DEDUPE_ONLY | {PREFIX: ""}, "", b"{}", "sha256"),
        (DEDUPE_ONLY | {PREFIX: None}, "", b"{}", "sha256"),
        (DEDUPE_ONLY | {PREFIX: "v0="}, "v0=", b"{}", "sha256"),
        (DEDUPE_ONLY | {ALGORITHM: "hmac-sha512"}, "sha512=", b"{}", "sha512"),
        (DEDUPE_ONLY | {ALGORITHM: "hmac-sha512", PREFIX: ""}, "", b"{}", "sha512"),
        ({"BILLHOOK_SIGNATURE": "timestamped-hmac", ALGORITHM: "hmac-sha512"}, "t=1,v1=", b"1.{}", "sha512"),
    ],
)
def test_prefix_and_hash_function_of_an_hmac_are_options(config, prefix, content, digest):
    scheme = default_source(Settings.from_mapping({"BILLHOOK_SECRETS": [TEXT_SECRET], **config})).scheme

    signed = scheme.sign(b"{}", TEXT_SECRET, event_type="PingTest", now=datetime.fromtimestamp(1, UTC))

    assert signed == {
        "X-Webhook-Signature": prefix + hmac.digest(TEXT_SECRET.encode(), content, digest).hex()
    }


# --- sources --------------------------------------------------------------------------------------


TOO_FAR = "'eu': tolerance_seconds={!r} must be 1 to 86400"
NO_SCHEME = r"'eu': scheme is {}: give a scheme of billhook\.signing, as scheme=TimestampedHMAC\(\)"
NO_LIST = r"source 'eu' has {} for secrets: give a list, secrets=\[\.\.\.\], or .* secrets=\{{key id: key\}}"
WRONG_SOURCES = [
    *(
        ({"name": name}, "a source is named .*: use 1 to 64 letters, digits, '-' and '_'")
        for name in ("", "a/b", "-a", "a b", "a" * 65, "\u00fc", None, 3)
    ),
    *(({"tolerance_seconds": each}, TOO_FAR.format(each)) for each in (0, -1, 86_401, "300", None)),
    ({"scheme": "timestamped-hmac"}, NO_SCHEME.format("a text")),
    ({"scheme": TimestampedHMAC}, NO_SCHEME.format("the class TimestampedHMAC")),
    ({"scheme": None}, NO_SCHEME.format("None")),
    ({"secrets": SECRET}, NO_LIST.format("a text")),
    ({"secrets": SECRET.encode()}, NO_LIST.format("an object of the class bytes")),
    ({"secrets": None}, NO_LIST.format("None")),
    ({"secrets": ()}, "source 'eu' has no secret"),
    ({"secrets": {}}, "source 'eu' has no secret"),
    ({"secrets": [{}]}, "source 'eu' has no secret"),
    ({"secrets": {"": SECRET}}, "a key id must be a str and not empty, got str"),
    *(
        ({"type_header": name}, r"source 'eu': type_header=.* is no name of a header, such as X-G")
        for name in ("", *NO_HEADERS)
    ),
    *(
        ({"type_field": path}, r"source 'eu': type_field=.* is no field of a JSON body, such as \"t")
        for path in ("", *NO_PATHS)
    ),
    ({"type_header": "X-Event", "type_field": "type"}, "eu' has type_header='X-Event' and type_field='type'"),
    (
        {"scheme": SignatureTemplate(), "secrets": ["s" * 32], "type_field": "type"},
        "source 'eu': its scheme signs the event type, which is in a header",
    ),
]  # fmt: skip


def test_a_wrong_source_is_refused_with_what_to_give():
    for arguments, told in WRONG_SOURCES:
        with pytest.raises(ConfigError, match=told) as caught:
            Source(**{"name": "eu", "secrets": [SECRET], **arguments})
        assert SECRET not in str(caught.value)


def test_an_empty_option_for_the_type_is_none():
    settings = Settings.from_mapping({"BILLHOOK_TYPE_HEADER": "", "BILLHOOK_TYPE_FIELD": ""})
    assert (settings.type_header, settings.type_field) == (TYPE_HEADER, None)


@pytest.mark.parametrize(
    "name", ["Content-Type", "content-length", "HOST", "Cookie", "Webhook-Signature", "webhook-id"]
)
def test_a_header_with_a_meaning_of_its_own_is_no_type(name):
    with pytest.raises(ConfigError, match=f"source 'eu': {name} names no event type.* BILLHOOK_TYPE_HEADER"):
        Source("eu", secrets=[SECRET], type_header=name)
    with pytest.raises(ConfigError, match=f"source 'default': {name} names no event type"):
        default_source(Settings.from_mapping({"BILLHOOK_TYPE_HEADER": name, "BILLHOOK_SECRETS": SECRET}))


def test_a_header_of_another_scheme_may_be_the_type():
    other = BodyHMAC("X-Signature", replay_protection="dedupe-only")

    assert Source("eu", other, ["s" * 32], type_header="Webhook-Id").type_header == "Webhook-Id"
    with pytest.raises(ConfigError, match="x-signature names no event type"):
        Source("eu", other, ["s" * 32], type_header="x-signature")


def test_the_options_name_one_place_of_the_type():
    both = {"BILLHOOK_TYPE_HEADER": "X-Event", "BILLHOOK_TYPE_FIELD": "type", "BILLHOOK_SECRETS": SECRET}
    told = "BILLHOOK_TYPE_HEADER is 'X-Event' and BILLHOOK_TYPE_FIELD is 'type': the type is in one of them"
    with pytest.raises(ConfigError, match=told):
        default_source(Settings.from_mapping(both))


def test_the_field_of_the_option_is_the_default_sources_and_others_have_their_own():
    own = (
        Source("field", secrets=[SECRET], type_field="a.b"),
        Source("header", secrets=[SECRET], type_header="X-Event"),
        Source("neither", secrets=[SECRET]),
    )
    settings = Settings.from_mapping({"BILLHOOK_TYPE_FIELD": "event.type", "BILLHOOK_SECRETS": SECRET})

    sources = Billhook(sources=own)._all_sources(settings)

    assert [(each.name, each.type_header, each.type_field) for each in sources] == [
        ("default", None, "event.type"),
        ("field", None, "a.b"),
        ("header", "X-Event", None),
        ("neither", TYPE_HEADER, None),
    ]


def test_a_source_with_a_field_may_have_a_scheme_with_the_header_of_types():
    scheme = BodyHMAC(TYPE_HEADER, replay_protection="dedupe-only")

    assert Source("eu", scheme, ["s" * 32], type_field="type").type_field == "type"
    with pytest.raises(ConfigError, match="X-Webhook-Type names no event type"):
        Source("eu", scheme, ["s" * 32])


# --- secrets in the wrong place, and files that others may use ------------------------------------


SECRETS = [SECRET, f"[{SECRET}]", "-----BEGIN PUBLIC KEY-----"]
DATABASE = "postgresql://u:hunter2@h/db"


def test_a_secret_in_an_option_that_errors_repeat_is_refused_unseen():
    shown = [option.key for option in OPTIONS if not option.secret]
    numbers = ["BILLHOOK_TOLERANCE_SECONDS", "BILLHOOK_RETRY_SCHEDULE_SECONDS"]
    wrong = [*product(shown, SECRETS), *product([*numbers, "BILLHOOK_ENGINE"], [DATABASE])]

    for key, secret in wrong:
        told = f"^{key} (is a value that )?looks like a secret: "
        with pytest.raises(ConfigError, match=told) as caught:
            Settings.from_mapping({key: secret})
        assert secret not in str(caught.value)
    assert len(shown) > 20


def test_a_secrets_file_writable_by_others_is_refused_with_the_remedy(tmp_path):
    file = tmp_path / "my secrets"
    file.write_text(SECRET)
    for mode in (0o620, 0o602, 0o666):
        file.chmod(mode)

        with pytest.raises(ConfigError) as caught:
            start(tmp_path, BILLHOOK_SECRETS=[], BILLHOOK_SECRETS_FILE=file)

        told = f"BILLHOOK_SECRETS_FILE {file}: others may write it; run: chmod 600 '{file}'"
        assert str(caught.value) == told


@pytest.mark.parametrize(("mode", "warned"), [(0o640, True), (0o604, True), (0o600, False), (0o400, False)])
def test_a_secrets_file_readable_by_others_is_used_with_a_warning(tmp_path, caplog, mode, warned):
    file = tmp_path / "secrets"
    file.write_text(SECRET)
    file.chmod(mode)

    assert start(tmp_path, BILLHOOK_SECRETS=[], BILLHOOK_SECRETS_FILE=file)

    assert ("others may read it; run: chmod 600" in caplog.text) is warned


def test_pipes_and_missing_files_have_no_mode_warning(tmp_path):
    """A pipe, as `<(pass show billhook)` of a shell, and what is not there."""
    os.mkfifo(tmp_path / "pipe", 0o600)
    (tmp_path / "pipe").chmod(0o666)

    assert access_by_others(tmp_path / "pipe") is None
    assert access_by_others(tmp_path / "nowhere") is None


@pytest.mark.parametrize(
    ("suffix", "mode", "may"),
    [("", 0o644, "read"), ("", 0o666, "write"), ("-wal", 0o644, "read"), ("-shm", 0o606, "write")],
)
def test_an_inbox_accessible_to_others_is_warned_of_with_the_remedy(tmp_path, caplog, suffix, mode, may):
    inbox = open_inbox(tmp_path / "i.db")
    inbox.put(incoming("k"))
    (tmp_path / f"i.db{suffix}").chmod(mode)
    assert "others may" not in caplog.text

    open_inbox(tmp_path / "i.db").close()

    assert (
        f"others may {may} the inbox {tmp_path / 'i.db'}; run: chmod 600 {tmp_path / 'i.db'}" in caplog.text
    )
    inbox.close()
