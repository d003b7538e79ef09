"""Getting a contract, and putting one that is in review into force."""

from __future__ import annotations

from billhook.resources import ContractResponse
from billhook.sandbox.billing import contract_life, contracts
from billhook.sandbox.web.operation import Call, Group

__all__ = ["GROUP"]

GROUP = Group("_sandbox/contracts", prefix="/_sandbox/contracts")


@GROUP.operation("GET", "/{contractId}", gives=ContractResponse)
def get(call: Call[None]) -> ContractResponse:
    """Get the contract with this id or externalId: as GET /contracts/{contractId} does."""
    found = contracts.find(call.tx, call.path["contractId"])
    return ContractResponse(contract=contracts.shown(call.tx, [found])[0])


@GROUP.operation("POST", "/{contractId}/activate", gives=ContractResponse)
def activate(call: Call[None]) -> ContractResponse:
    """Put a contract that is InReview into force."""
    active = contract_life.activate(call.tx, contracts.find(call.tx, call.path["contractId"]))
    return ContractResponse(contract=contracts.shown(call.tx, [active])[0])
