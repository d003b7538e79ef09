"""Random histories of a sandbox by seed, to compare what two versions of its billing make of them.

`python -m support.histories before 2000` writes a file for each history to the folder `before`; run it with
another version and `diff -r` shows each difference. `histories.txt` beside the sandbox's component tests has
the digest of each, so that a test tells when billing has changed: `--digests` writes it from the folder.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

from sqlalchemy import select

from billhook.clock import FrozenClock
from billhook.errors import SandboxError
from billhook.sandbox import Sandbox, SandboxOptions
from billhook.sandbox.storage import tables
from support.sandbox import IN_MEMORY

DIGESTS = Path(__file__).parents[1] / "component" / "sandbox" / "histories.txt"
START = datetime(2026, 1, 1, tzinfo=UTC)
STEPS = 45
CREDITS = ("money-credits", "unit-credits")
METERS = {"call": "sum", "visit": "count", "peak": "max", "seat": "last", "user": "unique"}
LATER_METERS = {"desk": "sum", "lamp": "count"}
"""Products that have no meter in the beginning, and may get one later."""
_STEPS = {
    "use": 18, "measure": 6, "contract": 6, "advance": 16, "grant": 3, "deduct": 1, "top_up": 2, "approve": 2,
    "pay": 3, "activate": 1, "delete": 1, "status": 1, "currency": 1, "meter": 1, "rename": 1,
}  # fmt: skip


class History:
    """The story of two customers; `told` is what the sandbox answered where that is not in its records."""

    def __init__(self, sandbox: Sandbox, seed: int) -> None:
        self.sandbox = sandbox
        self.random = Random(seed)
        self.names: dict[str, str] = {}
        """Names by id, since ids differ from version to version."""
        self.told: list[Any] = []
        self.refs = itertools.count(1)
        self.products = {name: self._catalog_product(name) for name in (*METERS, *LATER_METERS)}
        for name, method in METERS.items():
            self._make_meter(name, method)
        self.customers = [self._customer(name) for name in ("acme", "bolt")]
        self.contracts: list[str] = []
        self.ends: list[tuple[str, str]] = []
        """Customer and end of contracts that are not renewed: others may begin at that moment."""

    def run(self) -> dict[str, Any]:
        """Live through it, and return what the sandbox has recorded in the end."""
        for _ in range(STEPS):
            step = self.random.choices([*_STEPS], [*_STEPS.values()])[0]
            getattr(self, f"_{step}")()
        self._move(timedelta(days=45))
        return self._records()

    def call(self, method: str, path: str, body: object = None) -> Any:
        """Send a request; None if it is refused, which is told."""
        try:
            return self.sandbox.call(method, path, body)
        except SandboxError as error:
            self.told.append(["refused", method, path.partition("?")[0], error.code])
            return None

    @property
    def now(self) -> datetime:
        return self.sandbox.clock.now()

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def moment(self, earliest: float, latest: float) -> datetime:
        """A moment so many days from now, at an hour that others have as well."""
        day = self.now + timedelta(days=self.random.uniform(earliest, latest))
        return day.replace(hour=self.random.choice([0, 0, 6, 12, 13]), minute=0, second=0, microsecond=0)

    # --- steps --------------------------------------------------------------------------------------

    def _use(self) -> None:
        reach = self.random.choice([(-1, 0), (-3, 0), (-3, 0), (-45, 0), (-1, 8)])
        events = []
        for _ in range(self.random.randint(1, 4)):
            units = self.random.choice([1, 2, 5, 10, 25, 60, 0.5, -3])
            data = {"units": units, "id": self.random.randint(1, 6)}
            alias = "stranger" if self.chance(0.01) else self.random.choice(["acme", "acme", "bolt"])
            name = self.random.choice([*METERS, *LATER_METERS, "call", "call", "call"])
            at = self.moment(*reach).isoformat()
            ref = f"ref-{next(self.refs)}"
            event = {"name": name, "timestamp": at, "customerAlias": alias, "ref": ref, "data": data}
            events.append(event)
        self.call("POST", "/v2/events", {"events": events})

    def _measure(self) -> None:
        day = self.moment(-20, 1)
        date = {"year": day.year, "month": day.month, "day": day.day}
        product = self.products[self.random.choice([*METERS, "call", "call"])]
        value = self.random.choice([0, 3, 10, 40])
        body = {"customerId": self._owner(), "meterId": product, "usageDate": date, "value": value}
        self.call("POST", "/measurements", body)

    def _contract(self) -> None:
        start, owner = self.moment(-40, 15) if self.chance(0.6) else self.now, self._owner()
        if self.ends and self.chance(0.3):
            owner, end = self.random.choice(self.ends)
            start = datetime.fromisoformat(end)
        fields = {**self._terms(start), **self._sold()}
        name = f"contract {len(self.contracts) + 1}"
        body = {"customerId": owner, "name": name, "startDate": start.isoformat(), **fields}
        answer = self.call("POST", "/contracts", body)
        if answer is not None:
            if fields.get("autoRenewContract") is False:
                self.ends.append((owner, fields["endDate"]))
            self._name(answer["contract"]["id"], name)
            self.contracts.append(answer["contract"]["id"])

    def _terms(self, start: datetime) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        if self.chance(0.4):
            fields["endDate"] = (start + timedelta(days=self.random.choice([10, 30, 45.5]))).isoformat()
            fields["autoRenewContract"] = self.chance(0.3)
        if self.chance(0.3):
            fields["shouldProRateInvoices"] = True
        if self.chance(0.2):
            fields["currency"] = self.random.choice(["USD", "JPY"])
        if self.chance(0.15):
            fields["status"] = "InReview"
        if self.chance(0.25):
            fields["creditGrants"] = [self._credits(price=True)]
            fields["creditGrants"][0]["schedule"] = self.random.choice(["Once", "Monthly"])
        return fields

    def _sold(self) -> dict[str, Any]:
        scheduling: dict[str, Any] = {}
        if self.chance(0.4):
            unit, value = self.random.choice([("Weeks", 1), ("Days", 10), ("Months", 1), ("Months", 2)])
            scheduling = {"scheduling": {"duration": {"unit": unit, "value": value}}}
        aligned = self.chance(0.4)
        chosen = self.random.sample([*METERS, *LATER_METERS, "call"], self.random.choice([1, 1, 2, 3]))
        sold = [{**self._product(name), **scheduling, "isCalendarAligned": aligned} for name in chosen]
        if self.chance(0.1):
            return {"planId": self._plan(sold)}
        if self.chance(0.15):
            group = {"displayName": "Bundle", "products": sold, "isCalendarAligned": aligned}
            return {"productGroups": [{**group, "baseAmount": 7, **self._commitment()}]}
        return {"products": sold}

    def _product(self, name: str) -> dict[str, Any]:
        pricing: dict[str, Any] = {"type": "PerUnit", "price": self.random.choice([1, 2, 0.35])}
        if self.chance(0.2):
            pricing = {"type": "Tiered", "tiers": [{"upTo": 20, "price": 1}, {"upTo": None, "price": 0.5}]}
        elif self.chance(0.15):
            pricing = {"type": "Flat", "price": 31}
        elif self.chance(0.1):
            pricing = {"price": 3}
        if self.chance(0.15):
            kind = self.random.choice(["Percentage", "Amount"])
            pricing["discount"] = {"type": kind, "amount": 10, "recurring": self.random.choice([1, 9])}
        if self.chance(0.1):
            pricing["issuedSeparately"] = True
        product = {"catalogProductId": self.products[name], "displayName": name.title(), "pricing": pricing}
        if self.chance(0.2):
            del product["displayName"]
        if self.chance(0.35):
            product["consumesCreditProductIds"] = self.random.choice([["money-credits"], [*CREDITS]])
        return product | (self._commitment() if self.chance(0.35) else {})

    def _plan(self, products: list[dict[str, Any]]) -> str:
        billing: dict[str, Any] = {"proRated": self.chance(0.5), "autoRenewal": self.chance(0.5)}
        if self.chance(0.5):
            billing["duration"] = self.random.choice([1, 3])
        body = {"name": "Plan", "products": products, "billingData": billing}
        answer = self.call("POST", "/_sandbox/plans", body)
        return "" if answer is None else self._name(answer["plan"]["id"], "plan")

    def _commitment(self) -> dict[str, Any]:
        kind = self.random.choice(["Units", "Currency"])
        commitment: dict[str, Any] = {"type": kind, "units": self.random.choice([10, 31, 100])}
        if self.chance(0.5):
            commitment["price"] = self.random.choice([15, 62])
        if self.chance(0.15):
            commitment["overageStrategy"] = "Block"
        if self.chance(0.25):
            commitment["scheduling"] = {"duration": {"unit": "Months", "value": 2}}
        return {"commitment": commitment}

    def _credits(self, *, price: bool) -> dict[str, Any]:
        kind = self.random.choice(["Monetary", "Unit"])
        fields: dict[str, Any] = {"creditProductId": CREDITS[kind == "Unit"], "balanceKind": kind}
        fields["grantAmount"] = self.random.choice([5, 20, 50])
        if price:
            fields |= {"name": f"{kind} credits", "price": 9}
        if self.chance(0.4):
            fields["expirationDate"] = self.moment(0.5, 40).isoformat()
        return fields

    def _grant(self) -> None:
        fields = self._credits(price=False)
        body = {**fields, "customerId": self._owner(), "creditAmount": fields.pop("grantAmount")}
        self.call("POST", "/_sandbox/credits/grant", body)

    def _deduct(self) -> None:
        body = {"customerId": self._owner(), "creditAmount": self.random.choice([1, 15])}
        self.call("POST", "/credits/deduct", body)

    def _top_up(self) -> None:
        grant = {**self._credits(price=True), "schedule": "Once"}
        self.call("POST", "/credits/top-up", {"customerId": self._owner(), "creditGrant": grant})

    def _approve(self) -> None:
        self._invoice_step("approve")

    def _pay(self) -> None:
        self._invoice_step("payments", {"outcome": self.random.choice(["paid", "paid", "failed"])})

    def _invoice_step(self, step: str, body: object = None) -> None:
        listed = self.call("GET", "/invoices?limit=1000")["invoices"]
        if listed:
            invoice = self.random.choice(listed[-5:])
            self.call("POST", f"/_sandbox/invoices/{invoice['id']}/{step}", body)

    def _activate(self) -> None:
        if self.contracts:
            self.call("POST", f"/_sandbox/contracts/{self.random.choice(self.contracts)}/activate")

    def _delete(self) -> None:
        if self.contracts:
            self.call("DELETE", f"/contracts/{self.random.choice(self.contracts)}")

    def _status(self) -> None:
        status = self.random.choice(["Inactive", "Active", "Active"])
        self.call("PUT", f"/customers/{self._owner()}", {"status": status})

    def _currency(self) -> None:
        currency = self.random.choice(["JPY", "EUR", "USD", None])
        self.call("PUT", f"/customers/{self._owner()}", {"currency": currency})

    def _meter(self) -> None:
        name = self.random.choice([*LATER_METERS])
        self._make_meter(name, LATER_METERS[name])

    def _rename(self) -> None:
        product = self.products[self.random.choice([*self.products])]
        name = f"name {self.random.randint(1, 99)}"
        self.call("PUT", f"/catalogProducts/{product}", {"name": name})

    def _advance(self) -> None:
        self._move(timedelta(hours=self.random.choice([5, 12, 36, 24 * 4, 24 * 9])))
        for customer_id in self.customers:
            listed = self.call("GET", f"/customers/products-consumptions/{customer_id}")
            self.told.append(listed["productsConsumptions"])

    def _move(self, by: timedelta) -> None:
        self.call("POST", "/_sandbox/clock", {"to": (self.now + by).isoformat()})

    # --- what it is about ---------------------------------------------------------------------------

    def _owner(self) -> str:
        return self.random.choice([self.customers[0], *self.customers])

    def _name(self, resource_id: str, name: str) -> str:
        self.names[resource_id] = name
        return resource_id

    def _customer(self, name: str) -> str:
        contacts = [{"name": "Ada", "email": f"ada@{name}.example", "receiveInvoiceEmail": True}]
        body = {"name": name, "aliases": [name], "contacts": contacts}
        return self._name(self.call("POST", "/_sandbox/customers", body)["customer"]["id"], name)

    def _catalog_product(self, name: str) -> str:
        made = self.call("POST", "/catalogProducts", {"name": name})["catalogProduct"]["id"]
        return self._name(made, f"product {name}")

    def _make_meter(self, name: str, method: str) -> None:
        meter = {"name": name, "eventName": name, "aggregationMethod": method}
        meter["catalogProductId"] = self.products[name]
        meter["property"] = "id" if method == "unique" else "units"
        self.call("POST", "/_sandbox/meters", meter)

    # --- what is recorded ---------------------------------------------------------------------------

    def _records(self) -> dict[str, Any]:
        invoices = self.call("GET", "/invoices?limit=1000")["invoices"]
        for invoice in invoices:
            self._name(invoice["id"], f"invoice {invoice['invoiceNumber']}")
        ledgers = [
            self.call("GET", f"/credits?customerId={each}&limit=1000")["entries"] for each in self.customers
        ]
        for entry in itertools.chain(*ledgers):
            self._name(entry["creditPoolId"], f"pool of {entry['creditProductId']}")
        table = tables.raised_event
        with self.sandbox.service.transaction(writes=False) as tx:
            columns = (table.c.event_type, table.c.raised_at, table.c.body)
            rows = tx.connection.execute(select(*columns).order_by(table.c.seq)).all()
        raised = [[row.event_type, row.raised_at.isoformat(), json.loads(row.body)] for row in rows]
        records = {"invoices": invoices, "ledger": ledgers, "told": self.told, "events": raised}
        return dict(self._named(records))

    def _named(self, value: Any) -> Any:
        """The value with names for ids, and without what differs from version to version by itself."""
        if isinstance(value, dict):
            left_out = ("id", "transactionId", "creditNoteNumber", "paymentMethodId", "reportId")
            return {name: self._named(each) for name, each in value.items() if name not in left_out}
        if isinstance(value, list):
            return [self._named(each) for each in value]
        if isinstance(value, str):
            for resource_id, name in self.names.items():
                value = value.replace(resource_id, name)
            return value
        # Without zeros at the end, which say nothing.
        return value if isinstance(value, bool | None) else f"{Decimal(str(value)).normalize():f}"


@contextmanager
def fresh_sandbox() -> Iterator[Sandbox]:
    """A sandbox in this process, at the beginning of 2026, whose ids rise."""
    # Ids that rise: rows that are ordered by them keep their order from run to run.
    numbers = itertools.count(1)
    rising = patch("billhook.sandbox.storage.database.secrets.token_hex", lambda _: f"{next(numbers):06}")
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as folder, rising:
        url = f"sqlite:///{folder}/sandbox.db"
        options = SandboxOptions(database_url=url, rate_limit="1000000/second")
        sandbox = Sandbox(options, clock=FrozenClock(START))
        try:
            yield sandbox
        finally:
            sandbox.close()


def history(seed: int) -> str:
    """Return what a sandbox has recorded of the history with this seed, a line for each record."""
    with fresh_sandbox() as sandbox:
        records = History(sandbox, seed).run()
    lines = [
        f"{part} {json.dumps(each, sort_keys=True)}" for part, all_of in records.items() for each in all_of
    ]
    return "\n".join(lines) + "\n"


def digest(text: str) -> str:
    """Return a short digest of a history."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def main() -> None:
    """Write histories to a folder."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("count", type=int)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--digests", action="store_true", help=f"write {DIGESTS.name} from all in the folder")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    for seed in range(given.first, given.count):
        (given.folder / f"{seed:04}.txt").write_text(history(seed))
    if given.digests:
        files = sorted(given.folder.glob("*.txt"))
        DIGESTS.write_text("".join(f"{file.stem} {digest(file.read_text())}\n" for file in files))


if __name__ == "__main__":
    main()
