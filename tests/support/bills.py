"""Bills as a table: each scenario is a story of short steps, and what the sandbox has recorded after it.

A step is one line, and dates are moments of 2026 such as `02-10` or `01-15T12`, unless they have a year:

| step | what happens |
|---|---|
| `02-10` | the clock is moved to there; a story begins on 01-01 |
| `sell {"products": …}` | a contract, from 01-01 on; it is the next letter, from `A` |
| `use 10 call 01-05` | an event `call` with 10 units; the word after it is another alias than `acme` |
| `measure 10 call 01-05` | a measurement of that day |
| `set {"currency": "JPY"}` | the customer is changed |
| `meter desk` | a product of `UNMETERED` gets a meter; those of `METERS` have one |
| `grant 100 {…}`, `deduct 5`, `top-up {…}` | credits, Monetary and of the product `m` if not given |
| `delete A`, `activate A` | a contract |
| `approve 1`, `pay 1 {…}` | an invoice, by its number |
| `subscribe CommitmentUsageCrossed {"threshold": 50}` | a subscription |
| `PUT /customers/$acme {…}` | any other request; `$name` is the id of a customer, product, plan or contract |

`plan {…}` makes the plan `$plan`, and `$long` is longer than any name may be. A step that ends with `! code`
must be refused with that code and change nothing; one with `! code param : text` for this parameter, and with
this text in the message.
"""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import select

from billhook.errors import SandboxError
from billhook.fields import strict_json
from billhook.sandbox import Sandbox
from billhook.sandbox.storage import tables

METERS = {"call": "sum", "mail": "sum", "peak": "max", "seat": "last", "user": "unique"}
UNMETERED = ("desk", "lamp")
SHOWN = {
    "events": {
        "TierCrossed": ("variantId",),
        "FinalTierExceeded": ("accumulatedUnitsValue",),
        "CommitmentCrossed": ("consumedAmount",),
        "CommitmentUsageCrossed": ("threshold", "pctUsage"),
        "CurrencyCommitmentUsageCrossed": ("threshold", "consumedAmount", "currency"),
        "Overage": ("overageAmount",),
        "UpcomingRenewal": ("contractEndDate",),
        "ContractExpired": ("contractEndDate",),
        "UnchargedEvents": (),
    },
    "payments": {
        "InvoiceApproved": (),
        "InvoicePaymentStatusChanged": ("billingStatus", "amountDue"),
        "PaymentFailed": ("amount", "failureReason"),
    },
    "pools": {
        "CreditPoolIncreased": ("grantedAmount", "previousBalance"),
        "CreditPoolThresholdCrossed": ("threshold", "pctUsage"),
        "CreditPoolDepleted": ("balance",),
    },
}
"""The events that scenarios tell, by what they are about, with the fields that are shown."""


def moment(text: str) -> str:
    """A moment as the API takes it."""
    year = text if text[:4].isdigit() else f"2026-{text}"
    day, _, hour = year.partition("T")
    return f"{day}T{hour or '00':0<2}:00:00Z" if ":" not in hour else f"{day}T{hour}Z"


@dataclass
class Story:
    """The story of one customer, Acme, in a sandbox of its own."""

    sandbox: Sandbox
    ids: dict[str, str] = field(default_factory=dict)
    refs: Any = field(default_factory=lambda: itertools.count(1))
    letters: Any = field(default_factory=lambda: iter("ABCDEFGHIJ"))

    def __post_init__(self) -> None:
        self.ids["long"] = "x" * 256
        self.customer("acme")

    def call(self, method: str, path: str, body: object = None) -> Any:
        """Send a request; `$name` in it stands for an id."""
        return self.sandbox.call(method, self._with_ids(path), body)

    def take(self, step: str) -> None:
        """Take a step of the story."""
        step, _, expected = (part.strip() for part in step.partition(" ! "))
        expected, _, text = expected.partition(" : ")
        self._with_ids(step)  # before the step: the first use of a product makes it
        told, message, before = "", "", self._stored() if expected else []
        try:
            self._take(step)
        except SandboxError as error:
            body: Any = strict_json.loads(error.body)
            message = body["message"]
            params = [each["param"] for each in body.get("params", [])] or [body.get("param", "")]
            told = " ".join([error.code, *params] if " " in expected else [error.code])
            assert self._stored() == before, step
        assert (step, told, text in message) == (step, expected, True)

    def _take(self, step: str) -> None:
        verb, _, rest = step.partition(" ")
        words, brace, fields = rest.partition("{")
        given: Any = strict_json.loads(self._with_ids(brace + fields).encode()) if brace else {}
        arguments = words.split()
        if verb[0].isdigit():
            self.call("POST", "/_sandbox/clock", {"to": moment(verb)})
        elif verb.isupper():
            self.call(verb, arguments[0], given if brace else None)
        else:
            getattr(self, verb.replace("-", "_"))(*arguments, **({"fields": given} if brace else {}))

    def _stored(self) -> list[Any]:
        """All that is stored."""
        with self.sandbox.service.transaction(writes=False) as tx:
            return [tx.connection.execute(each.select()).all() for each in tables.metadata.sorted_tables]

    def _with_ids(self, text: str) -> str:
        return re.sub(r"\$(\w+)", lambda found: self._id(found[1]), text)

    def _id(self, name: str) -> str:
        if name not in self.ids and name in (*METERS, *UNMETERED):
            made = self.call("POST", "/catalogProducts", {"name": name})
            self.ids[name] = made["catalogProduct"]["id"]
            if name in METERS:
                self.meter(name)
        return self.ids[name]

    # --- verbs --------------------------------------------------------------------------------------

    def customer(self, name: str, *, fields: Any = None) -> None:
        contact = {"name": "Ada", "email": f"ada@{name}.example", "receiveInvoiceEmail": True}
        body = {"name": name, "aliases": [name], "contacts": [contact], **(fields or {})}
        self.ids[name] = self.call("POST", "/_sandbox/customers", body)["customer"]["id"]

    def meter(self, name: str) -> None:
        method = METERS.get(name, "sum")
        body = {"name": name, "eventName": name, "aggregationMethod": method, "property": "units"}
        self.call("POST", "/_sandbox/meters", {**body, "catalogProductId": self._id(name)})

    def plan(self, *, fields: Any) -> None:
        body = {"name": "Plan", **fields}
        self.ids["plan"] = self.call("POST", "/_sandbox/plans", body)["plan"]["id"]

    def sell(self, *, fields: Any) -> None:
        for name in ("startDate", "endDate"):
            if name in fields:
                fields[name] = moment(fields[name])
        body = {"customerId": self.ids["acme"], "name": "Deal", "startDate": moment("01-01"), **fields}
        made = self.call("POST", "/contracts", body)["contract"]
        self.ids[next(self.letters)] = made["id"]

    def delete(self, letter: str) -> None:
        self.call("DELETE", f"/contracts/{self.ids[letter]}")

    def activate(self, letter: str) -> None:
        self.call("POST", f"/_sandbox/contracts/{self.ids[letter]}/activate")

    def use(self, units: str, name: str, at: str, alias: str = "acme") -> None:
        if name in METERS:
            self._id(name)
        data = {"units": strict_json.loads(units.encode())}
        event = {"name": name, "timestamp": moment(at), "customerAlias": alias, "ref": f"r{next(self.refs)}"}
        answer = self.call("POST", "/v2/events", {"events": [{**event, "data": data}]})
        assert answer["invalidEvents"] == []

    def measure(self, units: str, name: str, day: str) -> None:
        year, month, number = map(int, moment(day)[:10].split("-"))
        body = {"customerId": self.ids["acme"], "meterId": self._id(name), "value": float(units)}
        date = {"year": year, "month": month, "day": number}
        self.call("POST", "/measurements", {**body, "usageDate": date})

    def set(self, *, fields: Any) -> None:
        self.call("PUT", "/customers/$acme", fields)

    def _credits(self, fields: Any) -> dict[str, Any]:
        if "expirationDate" in fields:
            fields["expirationDate"] = moment(fields["expirationDate"])
        return {"creditProductId": "m", "balanceKind": "Monetary", **fields}

    def grant(self, amount: str, *, fields: Any = None) -> None:
        body = {"customerId": self.ids["acme"], "creditAmount": float(amount), **self._credits(fields or {})}
        self.call("POST", "/_sandbox/credits/grant", body)

    def deduct(self, amount: str) -> None:
        self.call("POST", "/credits/deduct", {"customerId": self.ids["acme"], "creditAmount": float(amount)})

    def top_up(self, *, fields: Any) -> None:
        grant = {"name": "Pack", "grantAmount": 100, "price": 90, "schedule": "Once", **self._credits(fields)}
        self.call("POST", "/credits/top-up", {"customerId": self.ids["acme"], "creditGrant": grant})

    def approve(self, number: str) -> None:
        self.call("POST", f"/_sandbox/invoices/{self._invoice(number)}/approve")

    def pay(self, number: str, *, fields: Any = None) -> None:
        body = fields or {"outcome": "paid"}
        self.call("POST", f"/_sandbox/invoices/{self._invoice(number)}/payments", body)

    def subscribe(self, kind: str, *, fields: Any) -> None:
        self.call("POST", "/webhook", {"callbackUrl": "https://acme.example/", "eventType": kind, **fields})

    def _invoice(self, number: str) -> str:
        return str(self._invoices()[int(number) - 1]["id"])

    # --- what is recorded ---------------------------------------------------------------------------

    def recorded(self, part: str) -> list[str]:
        """What the sandbox has recorded, by one of the names that a scenario may expect, a text each."""
        return self._events_of(SHOWN[part]) if part in SHOWN else list(getattr(self, f"_{part}_texts")())

    def _invoices(self) -> list[Any]:
        return list(self.call("GET", "/invoices?limit=1000")["invoices"])

    def _bills_texts(self) -> list[str]:
        """Day of issue and amount; the currency where it is not USD."""
        return [
            f"{each['issuedAt'][5:10]} {self._number(each['amount'])}"
            + (f" {each['currency']}" if each["currency"] != "USD" else "")
            for each in self._invoices()
        ]

    def _cycles_texts(self) -> list[str]:
        cycles = [each["billingCycle"] for each in self._invoices()]
        return [f"{self._day(each['startTime'])} to {self._day(each['endTime'])}" for each in cycles]

    def _states_texts(self) -> list[str]:
        return [
            f"{each['billingStatus']} {each.get('dueDate', '')[5:10]}".strip() for each in self._invoices()
        ]

    def _lines_texts(self) -> list[str]:
        """The lines of the newest invoice."""
        return [
            f"{each['productName']}: {self._number(each['units'])} for "
            f"{self._number(each['revenueBreakdown']['total'])}"
            for each in self._invoices()[-1]["lineItems"]
        ]

    def _ledger_texts(self) -> list[str]:
        entries = self.call("GET", "/credits?customerId=$acme&limit=1000")["entries"]
        return [
            f"{each['createdAt'][5:10]} {each['type']} {self._number(each['amount'])}" for each in entries
        ]

    def _owed_texts(self) -> list[str]:
        """Each amount of the customer that is not 0."""
        owed = self.call("GET", "/_sandbox/customers/$acme")["customer"]
        amounts = [(name, owed[name]) for name in sorted(owed) if name.endswith("Amount")]
        return [f"{name} {self._number(amount)}" for name, amount in amounts if amount]

    def _consumed_texts(self) -> list[str]:
        """What is used of what is provided, in the present cycle; `blocked` without access."""
        used = self.call("GET", "/customers/products-consumptions/$acme")["productsConsumptions"]
        return [
            f"{each['productName']} {self._number(each['consumedAmount'])} of "
            f"{self._number(each['provisionedAmount'])}{'' if each['hasAccess'] else ' blocked'}"
            for each in used
        ]

    def _terms_texts(self) -> list[str]:
        """Status, end and renewal of each contract."""
        found = self.call("GET", "/contracts?limit=1000")["contracts"]
        return [
            f"{each['status']} {self._day(each.get('endDate', ''))} {each['autoRenewContract']}".replace(
                "  ", " "
            )
            for each in found
        ]

    def _events_of(self, kinds: dict[str, tuple[str, ...]]) -> list[str]:
        """Day, type and telling fields of each event of these types."""
        table = tables.raised_event
        columns = table.c.event_type, table.c.raised_at, table.c.body
        with self.sandbox.service.transaction(writes=False) as tx:
            rows = tx.connection.execute(select(*columns).order_by(table.c.seq)).all()
        names = {number: name for name, number in self.ids.items()}
        found = []
        for row in rows:
            if row.event_type in kinds:
                body = json.loads(row.body)
                values = [self._shown(body[name], names) for name in kinds[row.event_type]]
                found.append(" ".join([f"{row.raised_at:%m-%d}", row.event_type, *values]))
        return found

    def _shown(self, value: Any, names: dict[str, str]) -> str:
        if isinstance(value, str):
            for number, name in names.items():
                value = value.replace(number, name)
            return self._day(value)
        return self._number(value)

    def _day(self, text: str) -> str:
        """A moment as stories write it."""
        return text.removeprefix("2026-").removesuffix(":00:00Z").removesuffix("T00")

    def _number(self, value: Any) -> str:
        return f"{float(value):.10g}" if value is not None else "none"
