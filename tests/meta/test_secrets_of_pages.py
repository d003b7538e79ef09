"""The lines that make a secret make it once: pasted again, in a second terminal, they give the same one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from billhook.settings import read_secrets_file
from billhook.signing import StandardWebhooks
from support.examples import environment
from support.pages import PAGES, ROOT
from support.processes import run_command

RANDOM = re.compile(r"/dev/urandom|\bsecrets\.token_|openssl rand")
ONCE_MORE = "export BILLHOOK_SECRETS=\"$(python -c 'import secrets; print(secrets.token_hex(32))')\"\n"


def makes_secrets() -> Iterator[tuple[str, str]]:
    """The pages with a block that exports a random secret, and the lines of this block that set it."""
    for page, text in PAGES.items():
        for block in re.findall(r"^```console\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
            lines = [line.removeprefix("$ ") for line in block.splitlines()]
            setting = [line for line in lines if line.startswith(("test -f ", "export ")) and "…" not in line]
            if RANDOM.search(block) and any(line.startswith("export ") for line in setting):
                yield page, "\n".join(setting) + "\n"


def pasted(lines: str, folder: Path) -> dict[str, str]:
    """What a new terminal in this folder has exported after the lines, and the files that this names."""
    names = re.findall(r"export (\w+)=", lines)
    clean = {name: value for name, value in environment().items() if name != "BILLHOOK_SECRETS"}
    shown = run_command(["sh", "-euc", f"{lines}env -0"], cwd=folder, env=clean, check=True).stdout
    values = dict(each.split("=", 1) for each in shown.rstrip("\0").split("\0"))
    exported = {name: values[name] for name in names}
    files = {
        name: Path(value).read_text() for name, value in exported.items() if value.startswith(str(folder))
    }
    return exported | files


@pytest.mark.parametrize(
    ("page", "lines"), list(makes_secrets()), ids=lambda part: part.partition("\n")[0][:40]
)
def test_a_secret_can_be_pasted_twice(page: str, lines: str, tmp_path: Path) -> None:
    first = pasted(lines, tmp_path)

    assert all(len(value) > 20 for value in first.values())
    assert pasted(lines, tmp_path) == first
    if "BILLHOOK_SECRETS_FILE" in first:
        name = re.search(r"BILLHOOK_SECRETS_FILE=\$PWD/(\S+)", lines)[1]
        (secret,) = read_secrets_file(str(tmp_path / name))
        assert len(StandardWebhooks().load([secret])) == 1


def test_all_examples_with_a_secret_are_tried_and_so_are_the_first_pages() -> None:
    tried = {page for page, _ in makes_secrets()}
    needing = {
        page for page, text in PAGES.items() if "billhook send" in text and page.startswith("examples/")
    }

    assert {"README.md", "deploy/site/TUTORIAL.md", "src/billhook/dashboard/README.md"} <= tried
    assert needing <= tried


def test_control_a_line_that_makes_another_secret_each_time_is_noticed(tmp_path: Path) -> None:
    assert pasted(ONCE_MORE, tmp_path) != pasted(ONCE_MORE, tmp_path)


READABLE = re.compile(
    r"install [^|;&\n]*-m 0?6?[0-7]?[0-7][4-7]\b[^|;&\n]*(?:\.env\b|pgpass|secret|token|/notify(?![-.\w]))"
)
"""A command that makes a file readable to all which has secrets, or in which users write them."""


@cache
def texts_that_are_printed_or_shipped() -> list[str]:
    """Of deploy/, of all pages, and of the source, which has the hints, the help and the templates."""
    shipped = [
        path for path in (ROOT / "deploy").rglob("*") if path.suffix in (".conf", ".env", ".yaml", ".yml", "")
        and path.is_file()
    ]  # fmt: skip
    sources = [
        path for path in (ROOT / "src").rglob("*") if path.is_file() and path.suffix not in (".pyc", ".png")
    ]
    own = [path.read_text(encoding="utf-8", errors="replace") for path in (*shipped, *sources)]
    return [*own, *PAGES.values()]


PRIVATE = re.compile(
    r"(?:deliveries export|--body|/dev/urandom|openssl rand|secrets\.token_|token_hex)"
    r"[^|;&\n]*(?<![->])> ?[\w./$\"]+"
)
"""A command that writes a secret or customers' data into a file that the shell makes."""


def makes_a_readable_file(text: str) -> list[str]:
    """The commands of a text whose shell has no umask for them, on their line or before it in their block."""
    lines, safe = [], False
    for line in text.splitlines():
        safe = (safe or "umask 077" in line) and not line.startswith("```")
        if PRIVATE.search(line) and not safe:
            lines.append(line)
    return lines


def test_no_command_of_a_page_or_hint_makes_a_readable_file_with_secrets_or_customers_data() -> None:
    found = [line for text in texts_that_are_printed_or_shipped() for line in makes_a_readable_file(text)]

    assert found == []
    assert makes_a_readable_file("$ billhook deliveries export --since 7d > deliveries.jsonl")  # the controls
    assert makes_a_readable_file("openssl rand -hex 24 > secret.txt\numask 077")
    assert not makes_a_readable_file("(umask 077; billhook deliveries export > deliveries.jsonl)")


SOURCED = re.compile(r"(?:\bset -a\b.*(?:\.|source)|(?:^|[;&#$] *)(?:\.|source) ?)\s*/\S+\.env\b")


def test_no_page_reads_a_file_of_options_as_shell() -> None:
    """systemd reads it otherwise: with KEY=a$b&c;d a shell has an empty KEY, and runs two commands."""
    lines = [line for text in texts_that_are_printed_or_shipped() for line in text.splitlines()]

    assert [line for line in lines if SOURCED.search(line)] == []
    assert SOURCED.search("# cd /srv/shop && set -a && . /etc/shop/shop.env")  # the controls
    assert SOURCED.search("# . /etc/shop/shop.env")


def test_nothing_that_is_printed_or_shipped_makes_a_readable_file_with_secrets_or_customers_data() -> None:
    lines = [line for text in texts_that_are_printed_or_shipped() for line in text.splitlines()]

    assert [line for line in lines if READABLE.search(line)] == []
    assert [line for line in lines if "pg_dump --" in line and "umask 077" not in line] == []
    assert READABLE.search("# install -m 0644 shop.env /etc/shop/shop.env")  # the control
    assert not READABLE.search("install -m 0640 -g shop shop.env /etc/shop/shop.env")
    assert READABLE.search("install -m 0644 /dev/null /etc/shop/notify")
