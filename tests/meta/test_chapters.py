"""The README is short and leads to every chapter; every link on every page goes somewhere."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from billhook.settings import OPTIONS
from support.pages import PAGES, README, ROOT, anchors, links

MOST_LINES = 180


def broken(page: str, text: str) -> Iterator[str]:
    """Targets of links that are not there."""
    for target in links(text):
        path, _, anchor = target.partition("#")
        there = posixpath.normpath(posixpath.join(posixpath.dirname(page), path)) if path else page
        if not (ROOT / there).exists() or (anchor and anchor not in anchors(PAGES.get(there, ""))):
            yield target


def reachable() -> set[str]:
    """The pages that a reader who begins at the README gets to."""
    found, new = set(), {"README.md"}
    while new:
        page = new.pop()
        found.add(page)
        for target in links(PAGES[page]):
            path = target.partition("#")[0]
            there = posixpath.normpath(posixpath.join(posixpath.dirname(page), path))
            candidates = {there, posixpath.join(there, "README.md")} & PAGES.keys()
            new |= candidates - found
    return found


def test_the_readme_is_a_landing_page():
    assert README.count("\n") <= MOST_LINES


def test_the_first_handler_stands_on_the_first_screen():
    assert README.index("@handlers.on(") < README.index("\n" * 2 + "## ")
    assert README[: README.index("@handlers.on(")].count("\n") <= 25


def test_every_link_leads_to_a_file_and_a_heading_that_are_there():
    assert {page: found for page, text in PAGES.items() if (found := list(broken(page, text)))} == {}


def test_a_broken_link_would_be_noticed():
    text = "[a](nowhere.md) [b](README.md#no-such-heading) [c](README.md#promises) [d](https://example.com)"

    assert list(broken("README.md", text)) == ["nowhere.md", "README.md#no-such-heading"]


def test_every_page_is_reached_from_the_readme():
    # The form of a pull request is shown by GitHub.
    assert PAGES.keys() - reachable() == {".github/PULL_REQUEST_TEMPLATE.md"}


def test_each_command_of_a_part_of_the_tests_names_folders_that_are_there():
    commands = re.findall(r"`python -m pytest -n 2 (tests/.+?)`", PAGES["tests/README.md"])

    assert len(commands) == 8
    assert [one for command in commands for one in command.split() if not (ROOT / one).is_dir()] == []


def test_one_page_says_how_long_a_failing_handler_is_tried_and_it_is_right():
    default = {option.key: option.default for option in OPTIONS}
    waits = default["BILLHOOK_RETRY_SCHEDULE_SECONDS"]
    shortest = sum(waits) / 3600
    longest = shortest * (1 + default["BILLHOOK_RETRY_JITTER"])
    text = f"by default after the eighth, {shortest:.1f} to {longest:.1f} hours after the first"

    assert len(waits) + 1 == 8
    assert [page for page, told in PAGES.items() if text in " ".join(told.split())] == [
        "src/billhook/handlers/README.md"
    ]
    others = {
        page: re.findall(r"1[789](?:\.\d)? hours|(?:seven|eight|nine)teen hours", told)
        for page, told in PAGES.items()
    }
    assert [page for page, found in others.items() if found] == ["src/billhook/handlers/README.md"]
