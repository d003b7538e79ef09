"""Usage of cycles that are billed already.

Until the cycle's invoice is approved, it is written anew. What comes afterwards is charged by the next
invoice of the contract: what the cycle comes to now, less what was billed for it. Where no invoice comes any
more, the report of the month tells it. The specification does not say what becomes of it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from billhook.sandbox.billing import billed_lines, contracts, invoices, overages
from billhook.sandbox.billing.billed_lines import BilledLine
from billhook.sandbox.billing.contracts import KeptContract
from billhook.sandbox.billing.lines import Cycle
from billhook.sandbox.billing.rating import Charge
from billhook.sandbox.billing.rollups import Key
from billhook.sandbox.billing.statements import rerated
from billhook.sandbox.transaction import Transaction

__all__ = ["bill", "note", "write_off"]


def note(tx: Transaction, changed: Iterable[Key]) -> None:
    """Take in that these rows of usage have changed: write invoices anew, or have it billed by the next one.

    Raises Overage for a product that was used beyond its commitment by that.
    """
    for cycle, billed in _by_cycle(tx, billed_lines.of_usage(tx, list(changed))):
        _rewrite(tx, cycle, [each for each in billed if not each.is_approved])
        for each in billed:
            if each.is_approved:
                billed_lines.mark_late(tx, each)


def bill(tx: Transaction, contract: KeptContract) -> list[tuple[str, Charge]]:
    """What is to be charged for late usage of a contract's cycles, with the keys of its lines; once."""
    found = []
    for billed, charge in _differences(tx, billed_lines.late(tx, contract_id=contract.id), draws=True):
        span = f"late usage of {billed.cycle_start:%Y-%m-%d} to {billed.cycle_end:%Y-%m-%d}"
        found.append((billed.key, replace(charge, product_name=f"{charge.product_name}, {span}")))
    return found


def write_off(tx: Transaction) -> list[tuple[BilledLine, Charge]]:
    """What would be charged where no invoice comes any more, and what for; once. No credits are drawn."""
    return list(_differences(tx, billed_lines.late(tx), draws=False))


def _rewrite(tx: Transaction, cycle: Cycle, billed: Sequence[BilledLine]) -> None:
    by_key = {each.key: each for each in billed}
    changed: defaultdict[str, dict[int, Charge]] = defaultdict(dict)
    exceeded: list[tuple[str, Charge]] = []
    for item in rerated(tx, cycle, by_key, draws=True) if by_key else ():
        before = by_key[item.key]
        difference = item.charge.less(before.charge)
        if not difference.is_nothing:
            billed_lines.change(tx, before, item.charge)
            changed[before.invoice_id][before.position] = item.charge
            if difference.exceeded:
                exceeded.append((before.invoice_id, item.charge))
    for invoice_id, charges in changed.items():
        invoice = invoices.rewrite(tx, invoices.INVOICES.get(tx, invoice_id), charges)
        for on_invoice, charge in exceeded:
            if on_invoice == invoice_id:
                overages.tell(tx, invoice, charge)


def _differences(
    tx: Transaction, late: Sequence[BilledLine], *, draws: bool
) -> Iterator[tuple[BilledLine, Charge]]:
    """What the lines come to beyond what was billed; it counts as billed from then on."""
    for cycle, billed in _by_cycle(tx, late):
        by_key = {each.key: each for each in billed}
        for item in rerated(tx, cycle, by_key, draws=draws):
            before = by_key[item.key]
            billed_lines.change(tx, before, item.charge)
            difference = item.charge.less(before.charge)
            if not difference.is_nothing:
                yield before, difference


def _by_cycle(tx: Transaction, billed: Iterable[BilledLine]) -> Iterator[tuple[Cycle, list[BilledLine]]]:
    """The cycles of these lines, each with its own."""
    for (contract_id, start, end), of_cycle in groupby(
        billed, lambda each: (each.contract_id, each.cycle_start, each.cycle_end)
    ):
        yield Cycle(contracts.CONTRACTS.get(tx, contract_id), start, end), list(of_cycle)
