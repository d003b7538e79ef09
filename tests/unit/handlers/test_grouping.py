"""Which failures are one bug: the same line of the user's code, whichever customer it was for."""

from __future__ import annotations

import json

from billhook.errors import Discard, Retry
from billhook.handlers import HandlerFailure
from billhook.handlers.grouping import group_of


def failing(function, *arguments):
    try:
        function(*arguments)
    except Exception as error:  # noqa: BLE001
        return HandlerFailure.from_exception(error).group
    raise AssertionError("nothing was raised")


def charge(customer_id):
    raise ValueError(f"customer {customer_id} has no plan")


def charge_twice(customer_id):
    if customer_id.endswith("1"):
        raise ValueError("first")
    raise ValueError("second")


def read(text):
    return json.loads(text)


def outer(function, *arguments):
    return function(*arguments)


def compiled(path, text):
    """The functions of a file, which is there so that a traceback shows its lines."""
    path.parent.mkdir(parents=True)
    path.write_text(text)
    namespace: dict = {}
    exec(compile(text, str(path), "exec"), namespace)
    return namespace


def test_a_bug_with_twelve_ids_is_one_group():
    groups = {failing(charge, f"cus_{number}") for number in range(12)}

    assert len(groups) == 1
    (group,) = groups
    assert group.place.endswith(f"test_grouping.py:{charge.__code__.co_firstlineno + 1} in charge")


def test_other_lines_other_types_and_other_callers_are_other_groups():
    keys = [
        failing(charge, "cus_1").key,
        failing(charge_twice, "cus_1").key,
        failing(charge_twice, "cus_2").key,
        failing(outer, charge, "cus_1").key,
    ]

    assert len(set(keys)) == len(keys)


def test_for_an_error_of_a_library_the_frame_that_called_it_counts():
    group = failing(read, "{")

    assert "in read" in group.place
    assert "raw_decode" not in group.key
    assert failing(read, '{"a": }').key == group.key  # another message of the library, the same bug


def test_a_library_beside_the_project_is_none_of_its_own_code(tmp_path):
    places = []
    for folder in ("site-packages", "shop"):
        text = "def check(value):\n    raise ValueError(value)\n"
        places.append(failing(compiled(tmp_path / folder / "helper.py", text)["check"], "a").place)

    assert "helper.py" not in places[0]
    assert places[1] == "shop/helper.py:2 in check"


def test_of_an_app_that_is_installed_its_package_is_its_own_code(tmp_path):
    """Called as billhook calls it: no frame of the test is in the traceback."""
    text = "def card(name):\n    raise ValueError(name)\n\n\ndef plan(name):\n    raise ValueError(name)\n"
    namespace = compiled(tmp_path / "site-packages" / "shop" / "handlers.py", text)

    def group(function, name):
        try:
            function(name)
        except ValueError as error:
            return HandlerFailure.from_exception(error.with_traceback(error.__traceback__.tb_next)).group

    one = group(namespace["card"], "Alice")

    assert one == group(namespace["card"], "Carol Smith")
    assert "handlers.py:2 in card" in one.place
    assert group(namespace["plan"], "Alice").key != one.key


def test_a_group_of_exceptions_is_one_of_its_members():
    def group(first):
        def raise_it():
            raise first

        return failing(lambda _: together(raise_it), "a")

    def together(function):
        try:
            function()
        except (KeyError, ZeroDivisionError) as error:
            raise ExceptionGroup("unhandled errors in a TaskGroup", [error]) from None

    one, other = group(KeyError("a")), group(ZeroDivisionError())

    assert one.key != other.key
    assert one.key == group(KeyError("b")).key
    assert "raise_it" in one.place


def test_groups_in_groups_cost_little():
    nested = KeyError("a")
    for _ in range(200):
        nested = ExceptionGroup("tasks", [nested] * 3)

    assert group_of(nested, "").key.count("KeyError") > 0


def test_a_failure_keeps_its_group_when_lines_move(tmp_path):
    keys = []
    for lines_above in (1, 40):
        text = "\n" * lines_above + "def book(event):\n    raise KeyError(event)\n"
        keys.append(failing(compiled(tmp_path / f"{lines_above}" / "shop.py", text)["book"], "a").key)

    assert keys[0] == keys[1]
    assert "raise KeyError(event)" in keys[0]


def test_without_a_frame_of_the_user_the_text_counts_without_ids():
    one, same, other = (
        HandlerFailure.from_exception(TimeoutError(text)).group
        for text in ("no answer within 30 s", "no answer within 60 s", "no answer")
    )

    assert one == same
    assert one.place is None
    assert other.key != one.key


def test_a_decision_of_the_handler_is_no_bug():
    for decision in (Retry(after_seconds=5), Discard("not ours")):
        assert HandlerFailure.from_exception(decision).group is None


def test_an_exception_whose_text_cannot_be_made_has_a_group():
    class Mute(Exception):
        def __str__(self):
            raise RuntimeError("no text")

    group = HandlerFailure.from_exception(Mute()).group

    assert "Mute" in group.key
