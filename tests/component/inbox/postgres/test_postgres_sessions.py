"""What a database, a URL or the environment say of sessions changes no value; other encodings are refused."""

from __future__ import annotations

import psycopg
import pytest
from click.testing import CliRunner
from psycopg import sql

from billhook.cli import main
from billhook.errors import InboxUnavailable, UnfitEncoding
from billhook.inbox import Inbox
from billhook.inbox.postgres.driver import SESSION
from support.apps import make_app
from support.inbox_view import incoming, open_inbox
from support.postgres import OTHER_SESSION, fresh_database, libpq, with_options

ODD = b"\\x7b\"\\'\xff\r\n"
BY_ENVIRONMENT = {
    "PGDATESTYLE": "German, DMY",
    "PGTZ": "Asia/Kathmandu",
    "PGCLIENTENCODING": "LATIN1",
    "PGOPTIONS": "-c standard_conforming_strings=off -c bytea_output=escape",
    "PGSERVICE": "other",
    "PGTARGETSESSIONATTRS": "any",
}


def round_trip(url):
    inbox = open_inbox(url)
    try:
        inbox.put(incoming("sessions", body=ODD))
        (read,) = inbox.received(10)
        with inbox.transaction("w") as transaction:
            settings = {
                name: transaction.connection.exec_driver_sql(f"SHOW {name}").scalar_one() for name in SESSION
            }
        return read.body == ODD, read.received_at.tzinfo is not None, settings
    finally:
        inbox.close()


def test_there_is_another_value_of_each_setting():
    assert set(OTHER_SESSION) == set(SESSION)
    assert all(OTHER_SESSION[name] != SESSION[name] for name in SESSION)


@pytest.mark.parametrize("by", ["the database", "the URL", "the environment"])
def test_no_setting_from_elsewhere_changes_how_values_are_written_or_read(
    database_url, monkeypatch, tmp_path, by
):
    Inbox(database_url).upgrade()
    url = database_url
    if by == "the database":
        with psycopg.connect(**libpq(database_url), autocommit=True) as connection:
            for name, value in OTHER_SESSION.items():
                statement = sql.SQL("ALTER DATABASE {} SET {} = {}").format(
                    sql.Identifier(connection.info.dbname), sql.Identifier(name), sql.Literal(value)
                )
                connection.execute(statement)
    elif by == "the URL":
        url = with_options(
            database_url, " ".join(f"-c{n}={v.replace(' ', chr(92) + ' ')}" for n, v in OTHER_SESSION.items())
        )
    else:
        services = tmp_path / "services.conf"
        services.write_text("[other]\noptions=-c bytea_output=escape\nclient_encoding=LATIN1\n")
        monkeypatch.setenv("PGSERVICEFILE", str(services))
        for name, value in BY_ENVIRONMENT.items():
            monkeypatch.setenv(name, value)

    kept, aware, settings = round_trip(url)

    assert (kept, aware) == (True, True)
    assert settings == SESSION


def test_a_database_that_is_set_to_read_only_is_503_until_it_is_not(database_url):
    """As a provider does where the disk is nearly full: that is its operator's decision, not ours."""
    Inbox(database_url).upgrade()
    inbox = open_inbox(database_url)
    with psycopg.connect(**libpq(database_url), autocommit=True) as connection:
        name = sql.Identifier(connection.info.dbname)
        connection.execute(sql.SQL("ALTER DATABASE {} SET default_transaction_read_only = on").format(name))
        with pytest.raises(InboxUnavailable, match="read-only"):
            inbox.put(incoming("refused"))
        connection.execute(sql.SQL("ALTER DATABASE {} RESET default_transaction_read_only").format(name))

    assert inbox.put(incoming("stored")).delivery_id
    inbox.close()


@pytest.mark.parametrize("encoding", ["LATIN1", "WIN1252", "SQL_ASCII", "EUC_JP", "UTF8"])
def test_a_database_in_another_encoding_is_refused_in_one_line(
    postgres_server, tmp_path, monkeypatch, encoding
):
    with fresh_database(postgres_server.url, f"ENCODING '{encoding}' TEMPLATE template0 LOCALE 'C'") as url:
        monkeypatch.setenv("BILLHOOK_INBOX_URL", url)
        monkeypatch.setenv("BILLHOOK_SECRETS", "whsec_" + "A" * 43 + "=")
        ran = [CliRunner().invoke(main, command) for command in (["db", "upgrade"], ["doctor"])]
        if encoding == "UTF8":
            assert ran[0].exit_code == 0
            assert round_trip(url)[0]
            return
        with pytest.raises(UnfitEncoding, match=f"has the encoding {encoding}, which cannot hold every text"):
            make_app(tmp_path, BILLHOOK_INBOX_URL=url)

    assert [result.exit_code for result in ran] == [2, 1]
    assert all(
        "createdb --encoding=UTF8 --template=template0" in " ".join(result.output.split()) for result in ran
    )
    assert ran[0].output.startswith("Error: the database of the inbox, postgresql+psycopg://")
