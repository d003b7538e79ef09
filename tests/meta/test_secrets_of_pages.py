"""The lines that make a secret make it once: pasted again, in a second terminal, they give the same one."""

from __future__ import annotations

import re
from collections.abc import Iterator
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


def lines_that_are_printed_or_shipped() -> list[str]:
    shipped = [
        path for path in (ROOT / "deploy").rglob("*") if path.suffix in (".md", ".conf", ".env", ".yaml")
    ]
    sources = [
        path for path in (ROOT / "src").rglob("*") if path.is_file() and path.suffix not in (".pyc", ".png")
    ]
    texts = [path.read_text(encoding="utf-8", errors="replace") for path in (*shipped, *sources)]
    return [line for text in texts for line in text.splitlines()]


def test_nothing_that_is_printed_or_shipped_makes_a_readable_file_with_secrets_or_customers_data() -> None:
    lines = lines_that_are_printed_or_shipped()

    assert [line for line in lines if READABLE.search(line)] == []
    assert [line for line in lines if "pg_dump --" in line and "umask 077" not in line] == []
    assert READABLE.search("# install -m 0644 shop.env /etc/shop/shop.env")  # the control
    assert not READABLE.search("install -m 0640 -g shop shop.env /etc/shop/shop.env")
    assert READABLE.search("install -m 0644 /dev/null /etc/shop/notify")
