"""Each filter of deliveries is described once: the form, the command and the record of actions have it."""

from __future__ import annotations

import re
import shlex

from billhook.cli.deliveries import list_
from billhook.dashboard.deliveries import parse_filter_form
from billhook.inbox.running.filters import FILTERS
from support.dashboard import Site
from support.inbox_view import NOON, change
from support.signing import APPROVED

GIVEN = {"time": "2026-01-15T12:00:00", "state": "dead", "flag": "1"}
"""What is written into a field, by its kind."""


def test_each_filter_is_a_field_of_the_form_an_option_of_the_command_and_in_the_record(site):
    made: Site = site()
    page = made.get("deliveries?state=").text

    for name, one in FILTERS.items():
        text = GIVEN.get(one.kind, "some text")
        form = parse_filter_form({one.option: text}, NOON)

        assert (form.mistakes, list(form.filter.given())) == ((), [name])
        words = shlex.split(form.options)
        value = [] if one.kind == "flag" else [text]
        assert words == [f"--{one.option}", *value]
        with list_.make_context("list", words) as context:  # raises for an unknown option or value
            assert context.params[name] not in (None, False, ())
        shown = ["…"] if one.private else value
        assert shlex.split(form.filter.as_options) == [f"--{one.option}", *shown]
        assert len(re.findall(f'name="{one.option}"', page)) == 1


def test_what_a_handler_has_missed_is_listed_by_its_name_and_its_former_ones(site, where):
    made: Site = site()
    made.deliver()
    made.deliver(APPROVED.replace(b"inv_1", b"inv_2"))

    change(where, "UPDATE run SET handler = 'shop.posted' WHERE handler = 'shop.mail' AND delivery_id = 1")

    missed = [
        re.findall(r'aria-label="delivery (\d+)"', made.get(f"deliveries?without-handler={name}").text)
        for name in ("shop.mail", "shop.posted", "shop.book", "shop.new")
    ]
    assert missed == [[], [], [], ["2", "1"]]
    preview = made.post("deliveries/replay", **{"scope": "all", "without-handler": "shop.new", "since": "7d"})
    command = re.search("given to it by a command alone: <code>([^<]+)<", preview.text)
    assert command is not None
    options = "--since [^ ]+ --without-handler shop.new"
    program = "flask --app shop billhook deliveries replay --handler shop.new"
    assert re.fullmatch(
        f"{program} ({options}|--without-handler shop.new --since [^ ]+) --dry-run", command[1]
    )


def test_a_filter_that_cannot_be_read_is_a_mistake_and_does_not_select(site):
    for name, one in FILTERS.items():
        for wrong in ("x" * 201, "\0"):
            form = parse_filter_form({one.option: wrong}, NOON)
            assert (form.filter.given(), form.mistakes) == (
                {},
                (f"{one.option}: no more than 200 characters of text",),
            )
        if one.kind in ("time", "state"):
            form = parse_filter_form({one.option: "nowhere"}, NOON)
            assert name not in form.filter.given()
            assert [mistake.partition(":")[0] for mistake in form.mistakes] == [one.option]
