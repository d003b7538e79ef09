"""Registering handlers: what is taken, what is refused, and under which name it runs."""

from __future__ import annotations

import asyncio
import gc
import re
from functools import partial

import pytest

from billhook import Handlers, signals
from billhook.errors import ConfigError, DuplicateHandlerName, HandlerSignature, LateRegistration
from billhook.events import (
    EVENT_TYPES,
    ContractExpired,
    InvoiceApproved,
    InvoicePaymentStatusChanged,
    PaymentFailed,
    PingTest,
    UnknownEvent,
    sample,
)
from billhook.events.base import Event
from billhook.handlers import ConnectedHandlers, RetrySchedule, connect


class Sender:
    """Stands for an app: signals need an object they can refer to weakly."""


@pytest.fixture
def sender():
    return Sender()


def of(sender, event_type):
    """The names of those who listen to this sender, without those of other tests who listen to any."""
    others = ConnectedHandlers(Sender()).names(event_type)
    return sorted(name for name in ConnectedHandlers(sender).names(event_type) if name not in others)


def only(handlers):
    ((_, handler),) = handlers.freeze()
    return handler


# --- how a handler is called ----------------------------------------------------------------------


def plain(event):
    return (event,)


def with_delivery(event, delivery):
    return event, delivery


def with_default(event, delivery=None):
    return event, delivery


def with_rest(*args):
    return args


def with_keywords(event, delivery, *, flag=False, **rest):
    return event, delivery


async def asynchronous(event):
    return (event,)


class Methods:
    def one(self, event):
        return (event,)

    def two(self, event, delivery):
        return event, delivery

    @classmethod
    def three(cls, event, delivery):
        return event, delivery

    @staticmethod
    def four(event):
        return (event,)

    def __call__(self, event):
        return (event,)


EVENT, BOTH = ("event",), ("event", "delivery")
GIVEN = [
    (plain, EVENT),
    (with_delivery, BOTH),
    (with_default, BOTH),
    (with_rest, BOTH),
    (with_keywords, BOTH),
    (asynchronous, EVENT),
    (lambda event: (event,), EVENT),
    (Methods().one, EVENT),
    (Methods().two, BOTH),
    (Methods.three, BOTH),
    (Methods.four, EVENT),
    (Methods(), EVENT),
    (partial(with_delivery, delivery=None), ("event", None)),
]
"""Functions, and what they are called with."""


def test_anything_that_takes_an_event_or_an_event_and_a_delivery_is_a_handler():
    for function, given in GIVEN:
        handlers = Handlers()
        assert handlers.on(PingTest, name="h")(function) is function
        result = only(handlers)("sender", event="event", delivery="delivery")
        assert (asyncio.run(result) if function is asynchronous else result) == given, function


def test_a_function_with_another_signature_is_refused():
    for function, signature in (
        (lambda: None, "()"),
        (lambda a, b, c: None, "(a, b, c)"),
        (lambda event, *, flag: None, "(event, *, flag)"),
        (lambda *, event: None, "(*, event)"),
        (type, "that cannot be read"),
        (3, "that cannot be read"),
        (None, "that cannot be read"),
    ):
        told = re.escape(f"has the signature {signature}: it must take (event) or (event, d")
        with pytest.raises(HandlerSignature, match=told):
            Handlers().on(PingTest, name="bad")(function)


def test_a_generator_function_is_refused():
    def handler(event):
        yield event

    async def asynchronous_handler(event):
        yield event

    for function in (handler, asynchronous_handler):
        with pytest.raises(HandlerSignature, match="of a generator, which does nothing when called"):
            Handlers().on(PingTest)(function)


# --- names ----------------------------------------------------------------------------------------


def test_the_default_name_is_module_and_qualified_name():
    names = []
    for function in (plain, Methods.four, Methods().one, Methods()):
        handlers = Handlers()
        handlers.on(PingTest)(function)
        names.append(only(handlers).name)

    assert names == [
        f"{__name__}.plain",
        f"{__name__}.Methods.four",
        f"{__name__}.Methods.one",
        f"{__name__}.Methods",
    ]
    assert repr(only(handlers)) == f"<Handler {__name__}.Methods>"


def test_two_equal_names_are_refused_at_the_second():
    for first, second in (
        ({"name": "a"}, {"name": "a"}),
        ({"name": "a"}, {"name": "b", "aliases": ("a",)}),
        ({"name": "b", "aliases": ("a",)}, {"name": "a"}),
        ({"name": "b", "aliases": ("a",)}, {"name": "c", "aliases": ["a"]}),
        ({}, {}),
    ):
        handlers = Handlers()
        handlers.on(PingTest, **first)(plain)

        with pytest.raises(
            DuplicateHandlerName, match=r"two handlers are named '.*': give one of them another name="
        ):
            handlers.on(InvoiceApproved, **second)(plain)


def test_a_name_may_be_any_line_of_text():
    for name in ("n" * 200, "shop.orders:Änderung", "on payment"):
        handlers = Handlers()
        handlers.on(PingTest, name=name)(plain)

        assert only(handlers).name == name


def test_registration_ends_when_the_app_starts():
    handlers = Handlers()
    handlers.freeze()

    with pytest.raises(
        LateRegistration, match="'late' was registered after init_app: import its module before"
    ):
        handlers.on(PingTest, name="late")(plain)


# --- which events ---------------------------------------------------------------------------------


def test_only_event_classes_can_be_waited_for():
    for wrong in ("PingTest", Event, UnknownEvent, int, sample(PingTest), None):
        with pytest.raises(ConfigError, match=r"on\(\) takes classes of billhook\.events, got "):
            Handlers().on(wrong)
    with pytest.raises(ConfigError, match=r"on\(\) needs an event class: @handlers\.on\(InvoiceApproved\)"):
        Handlers().on(plain)
    with pytest.raises(
        ConfigError, match=r"on\(\) needs an event class: on\(InvoiceApproved\), or on_any\(\)"
    ):
        Handlers().on()


def test_a_handler_is_connected_to_the_signals_of_its_events_for_one_app(sender):
    handlers = Handlers()
    handlers.on(InvoiceApproved, PaymentFailed, name="two")(plain)
    handlers.on_unknown(name="unknown")(plain)
    handlers.on_any(name="any")(plain)
    connect(handlers.freeze(), sender)

    assert of(sender, "InvoiceApproved") == ["any", "two"]
    assert of(sender, "PaymentFailed") == ["any", "two"]
    assert of(sender, "NeverHeardOf") == ["any", "unknown"]
    assert all("any" in of(sender, event_type) for event_type in EVENT_TYPES)
    assert of(sender, "PingTest") == ["any"]
    assert of(Sender(), "PingTest") == []


class Shop:
    """Has receivers that are bound methods."""

    def a(self, sender, *, event, delivery): ...
    def b(self, sender, *, event, delivery): ...


def test_handlers_are_in_the_order_in_which_they_were_registered(sender):
    """Blinker gives them in the order of their addresses, which many would have by no chance."""
    handlers, shop, prefix = Handlers(), Shop(), f"{__name__}.Shop."
    names = [f"h{number * 7 % 30}" for number in range(30)]
    for name in names:
        handlers.on(PingTest, name=name)(lambda event: None)
    signals.ping_test.connect(shop.b, sender=sender)
    connect(handlers.freeze(), sender)
    signals.ping_test.connect(shop.a, sender=sender)

    others = ConnectedHandlers(Sender()).names("PingTest")
    named = [name for name in ConnectedHandlers(sender).names("PingTest") if name not in others]
    assert named == [f"{prefix}b", *names, f"{prefix}a"]


def test_every_event_has_its_signal_before_any_app_does():
    for model in EVENT_TYPES.values():
        assert getattr(signals, model.signal_name).name == model.signal_name
    assert signals.unknown_event.name == "unknown_event"
    assert {"invoice_approved", "unknown_event", "delivery_accepted", "emit"} <= set(dir(signals))


def test_a_signal_that_no_event_has_is_an_error():
    with pytest.raises(AttributeError, match="there is no event type with a signal named 'invoice_aproved'"):
        _ = signals.invoice_aproved


def test_a_handler_is_found_by_name_or_alias(sender):
    handlers = Handlers()
    handlers.on(PingTest, name="new", aliases=("old", "older"))(plain)
    connect(handlers.freeze(), sender)
    subscribers = ConnectedHandlers(sender)

    found = [subscribers.find("PingTest", name) for name in ("new", "old", "older")]

    assert [one.name for one in found] == ["new"] * 3
    assert subscribers.find("PingTest", "oldest") is None


# --- options --------------------------------------------------------------------------------------

NO_SECONDS = [0, -1, float("nan"), float("inf"), "5", [5]]
SECONDS = "timeout_seconds is .*: it must be above 0 and at most 86400"
WINDOW = r"identity_window_seconds is .*: it must be above 0 and at most 604800 \(7 days"
WAIT = r"a wait between attempts is .* seconds: it must be from 0 to 2678400 \(31 days\)"
NO_WAITS = r"the waits .*: each must be a number of seconds, as in \[10, 60\]"
NO_LIST = (
    r"retry is {}: give the waits before the second, the third and further attempts.* as retry=\[10, 60\]; "
    r"retry=\[\] tries once"
)
NO_FIELD = "which is no field of"
REFUSED = [
    *(({"timeout_seconds": seconds}, SECONDS) for seconds in (86_401, *NO_SECONDS)),
    *(({"identity_window_seconds": seconds}, WINDOW) for seconds in (604_801, *NO_SECONDS, None)),
    *(({"retry": waits}, WAIT) for waits in ((-1,), (float("nan"),), (31 * 86_400 + 1,))),
    *(({"retry": waits}, NO_WAITS) for waits in ([None], ["soon"], (10**400,))),
    ({"retry": "10"}, NO_LIST.format("the text '10'")),
    *(({"retry": waits}, NO_LIST.format(waits)) for waits in (5, True)),
    *(({"at_most": number}, "at_most is .*: it must be a whole number") for number in (0, 1.5, True, 1001)),
    *(({"pause_after": number}, "pause_after is .*: it must be a whole number") for number in (0, -1)),
    ({"rate": 10}, 'rate is 10: write it as a text, a number and a unit, as "10/s"'),
    *(
        ({"rate": rate}, f"rate is '{rate}': write a whole number, a slash and s, min, h or d")
        for rate in ("10", "10/sec", "10 / s", "1.5/s")
    ),
    ({"rate": "0/s"}, "rate is '0/s', so no run would start: `billhook handlers pause` does that"),
    ({"rate": "1001/s"}, "rate is '1001/s', which is over 1000 a second: leave it out"),
    ({"aliases": "old"}, r"aliases is the text 'old': give a tuple, aliases=\('old',\)"),
    ({"identity": "date"}, r"identity is the text 'date': give a tuple, identity=\('date',\)"),
    *(
        (options, f"{option} names {field!r}, {NO_FIELD} InvoiceApproved: {told}")
        for field, told in (
            ("invoiceID", r"did you mean invoice_id\?"),
            ("invoice", r"did you mean invoice_id\?"),
            ("zzz", "what it is about is in invoice_id; it has"),
            ("model_extra", ""),
            (7, ""),
        )
        for option, options in (("ordered_by", {"ordered_by": field}), ("identity", {"identity": (field,)}))
    ),
    ({"ordered_by": len}, rf"ordered_by names <built-in function len>, {NO_FIELD} InvoiceApproved"),
    ({"identity": (len,)}, rf"identity names <built-in function len>, {NO_FIELD} InvoiceApproved"),
    *(
        (options, "give 1 to 200 printable characters")
        for name in ("", "n" * 201, "a\0b", "two\nlines", "\ud800", "\u202ehtiw", 7)
        for options in ({"name": name}, {"aliases": [name]})
    ),
]


def test_an_option_that_cannot_be_is_refused_with_what_to_write():
    for options, told in REFUSED:
        with pytest.raises(ConfigError, match=told):
            Handlers().on(InvoiceApproved, **options)


def test_options_travel_with_the_handler(sender):
    handlers = Handlers()
    handlers.on(
        InvoiceApproved, PaymentFailed,
        name="h", retry=[1, 2.5], timeout_seconds=0.5, ordered_by="invoice_id",
        identity=["invoice_id", "date"], identity_window_seconds=60,
    )(plain)  # fmt: skip
    handlers.on(InvoiceApproved, name="neither")(plain)
    connect(handlers.freeze(), sender)
    subscribers = ConnectedHandlers(sender).by_name("InvoiceApproved")

    ordered, neither = subscribers["h"], subscribers["neither"]

    assert (ordered.retry, ordered.timeout_seconds) == (RetrySchedule((1.0, 2.5)), 0.5)
    assert (ordered.ordered_by, ordered.identity) == ("invoice_id", ("invoice_id", "date"))
    assert (ordered.identity_window_seconds, ordered.has_run_options) == (60.0, True)
    assert (neither.ordered_by, neither.identity, neither.has_run_options) == (None, (), False)
    assert neither.identity_window_seconds == 86_400.0
    assert ConnectedHandlers(sender).by_name("PaymentFailed")["h"].ordered_by == "invoice_id"


def test_every_event_type_must_have_the_field():
    for beside, options, told in (
        (InvoicePaymentStatusChanged, {"ordered_by": "customer_id"}, "of InvoicePaymentStatusChanged"),
        (
            ContractExpired, {"ordered_by": "customer_id"},
            "of ContractExpired: what it is about is in contract_id; it has .*customer_name",
        ),
        (PingTest, {"identity": ("invoice_id",)}, "of PingTest: it has none"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=f"which is no field {told}"):
            Handlers().on(PaymentFailed, beside, **options)


def test_an_option_that_there_is_not_is_refused_with_the_nearest():
    for register, option, told in (
        (partial(Handlers().on, PingTest), "timout_seconds", r"\. Did you mean 'timeout_seconds'\?"),
        (Handlers().on_any, "colour", "$"),
        (Handlers().on_any, "ordered_by", ""),  # only handlers of named types have an order
        (Handlers().on_unknown, "ordered_by", ""),
    ):
        with pytest.raises(TypeError, match=rf"\(\) got an unexpected keyword argument '{option}'{told}"):
            register(**{option: 1})


# --- plain subscribers ----------------------------------------------------------------------------


def test_plain_subscribers_are_subscribers_for_any_app_or_for_one(sender):
    def anybody(sender, *, event, delivery): ...
    def mine(sender, *, event, delivery): ...

    signals.ping_test.connect(anybody)
    signals.ping_test.connect(mine, sender=sender)

    here, elsewhere = (ConnectedHandlers(one).names("PingTest") for one in (sender, Sender()))
    prefix = f"{__name__}.test_plain_subscribers_are_subscribers_for_any_app_or_for_one.<locals>."
    assert {prefix + "anybody", prefix + "mine"} <= set(here)
    assert prefix + "anybody" in elsewhere
    assert prefix + "mine" not in elsewhere


def test_an_unreferenced_subscriber_is_dropped_and_a_handler_is_not(sender):
    def forgotten(sender, *, event, delivery): ...

    handlers = Handlers()
    handlers.on(PingTest, name="kept")(lambda event: None)
    connect(handlers.freeze(), sender)
    del handlers
    signals.ping_test.connect(forgotten, sender=sender)
    before = len(of(sender, "PingTest"))
    del forgotten
    gc.collect()

    assert before == 2
    assert of(sender, "PingTest") == ["kept"]


def test_two_subscribers_of_one_name_are_refused_at_start_and_one_of_them_is_planned(sender):
    def make():
        def subscriber(sender, *, event, delivery): ...

        return subscriber

    kept = [make(), make()]
    for subscriber in kept:
        signals.ping_test.connect(subscriber, sender=sender)
    subscribers = ConnectedHandlers(sender)

    with pytest.raises(DuplicateHandlerName, match=r"two handlers are named .*make.<locals>.subscriber"):
        subscribers.check_names()

    (planned,) = [
        one for one in subscribers.by_name("PingTest", unique=False).values() if one.function in kept
    ]
    assert not planned.has_run_options
    assert planned.order_key("default", sample(PingTest)) is None
    assert planned.content_digest("default", sample(PingTest)) is None
    assert of(sender, "InvoiceApproved") == []
