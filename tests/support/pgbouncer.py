"""Debian's pgbouncer before a database of a test, and what other clients of it leave behind."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from sqlalchemy.engine import make_url

from support.examples import answers, free_port
from support.postgres import OTHER_SESSION, libpq, unavailable
from support.processes import logged

OTHER_SETTINGS = {**OTHER_SESSION, "search_path": "elsewhere", "statement_timeout": "5s"}
"""What else another client may leave in a session."""


@dataclass
class Pooler:
    """Pgbouncer before a database; `url` is the database's, through it."""

    url: str

    def client(self) -> psycopg.Connection[Any]:
        """Another client, with autocommit."""
        return psycopg.connect(**libpq(self.url), autocommit=True, prepare_threshold=None)

    def reconnect(self) -> None:
        """Have it open new sessions for all transactions that begin from now on.

        Nobody may be waiting for a session: pgbouncer takes one that it is opening for failed.
        """
        console = {**libpq(self.url), "dbname": "pgbouncer"}
        with psycopg.connect(**console, autocommit=True) as admin:
            admin.execute("RECONNECT")


@contextlib.contextmanager
def pooled(url: str, pool_mode: str = "transaction", sessions: int = 3) -> Iterator[Pooler]:
    """Run a pooler with a few sessions of a second for the database of a URL during the block."""
    program = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        unavailable("no pooler: pgbouncer is not installed (apt-get install pgbouncer)")
    server, port = libpq(url), free_port()
    with tempfile.TemporaryDirectory(prefix="billhook-pooler-") as name:
        folder = Path(name)
        # Its own user, where root starts it, looks at the file of users at each login.
        folder.chmod(0o755)
        where = " ".join(f"{name}={server[name]}" for name in ("host", "port", "dbname") if name in server)
        (folder / "users.txt").write_text(f'"{server["user"]}" ""\n')
        file = folder / "pgbouncer.ini"
        file.write_text(
            f"[databases]\n{server['dbname']} = {where}\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
            f"auth_type = trust\nauth_file = {folder / 'users.txt'}\nadmin_users = {server['user']}\n"
            f"pool_mode = {pool_mode}\ndefault_pool_size = {sessions}\n"
            "server_lifetime = 1\nignore_startup_parameters = extra_float_digits,options\n"
        )
        # It refuses to be root's; a server's socket may be for the server's user alone.
        owner = Path(server["host"]).owner() if server["host"].startswith("/") else "nobody"
        user = [f"--user={owner}"] if os.geteuid() == 0 else []
        through = make_url(url).set(host="127.0.0.1", port=port, query={})
        with logged([program, *user, file], folder / "pgbouncer.log", ready=lambda: answers(port)):
            yield Pooler(through.render_as_string(hide_password=False))


def leave_settings(client: psycopg.Connection[Any]) -> None:
    """Change a session as a client of a pooler may, and leave a table there that hides another one."""
    settings = ", ".join(
        sql.SQL("set_config({}, {}, false)").format(name, value).as_string()
        for name, value in OTHER_SETTINGS.items()
    )
    client.execute(f"SELECT {settings}".encode())
    client.execute("CREATE TEMPORARY TABLE IF NOT EXISTS delivery (id bigint)")
    client.execute("CREATE TEMPORARY TABLE IF NOT EXISTS billhook_version (version_num text)")


def set_for_database(url: str) -> None:
    """Give each new session of a database these settings, and tables of the inbox's names on its path."""
    with psycopg.connect(**libpq(url), autocommit=True) as connection:
        connection.execute("CREATE SCHEMA elsewhere")
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'billhook'")
        for (table,) in tables.fetchall():
            decoy = "CREATE TABLE elsewhere.{0} (LIKE billhook.{0} INCLUDING ALL)"
            connection.execute(sql.SQL(decoy).format(sql.Identifier(table)))
        for name, value in OTHER_SETTINGS.items():
            setting = sql.SQL("ALTER DATABASE {} SET {} = {}")
            database = sql.Identifier(connection.info.dbname)
            connection.execute(setting.format(database, sql.Identifier(name), sql.Literal(value)))


def note_commits(url: str) -> None:
    """Note of each row that is stored or settled whether its commit waits for the disk, at the commit."""
    with psycopg.connect(**libpq(url), autocommit=True) as connection:
        connection.execute(
            """
            SET search_path = billhook;
            CREATE TABLE public.noted (what text, waits text);
            CREATE FUNCTION public.note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                INSERT INTO public.noted VALUES (TG_TABLE_NAME, current_setting('synchronous_commit'));
                RETURN NULL;
            END $$;
            CREATE CONSTRAINT TRIGGER noted AFTER INSERT OR UPDATE ON delivery
                DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.note();
            CREATE CONSTRAINT TRIGGER noted AFTER INSERT OR UPDATE ON run
                DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.note();
            """
        )
