"""Contracts. Source: spec, "Endpoints", Contracts: there is no operation that fetches one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from billhook.client.operation import Operation
from billhook.client.operations.group import Group, body_of
from billhook.client.paging import Listing
from billhook.resources import Contract, ContractPage, ContractQuery, ContractResponse, NewContract

__all__ = ["CREATE", "DELETE", "GET", "LIST", "Contracts"]

CREATE = Operation("POST", "/contracts", repeatable=False)
LIST = Operation("GET", "/contracts", repeatable=True)
# Implied by the specification, which shows neither its request nor its response: as those of the others.
GET = Operation("GET", "/contracts/{contractId}", repeatable=True)
# A second DELETE would be answered "no such contract", as if the first had done nothing.
DELETE = Operation("DELETE", "/contracts/{contractId}", repeatable=False)


class Contracts(Group):
    """What customers have agreed to."""

    def create(self, contract: NewContract | Mapping[str, Any]) -> Contract:
        """POST /contracts. Raises RuleBroken for planId beside products, and for neither plan nor name."""
        return self._calls.read(CREATE, ContractResponse, body=body_of(NewContract, contract)).contract

    def list(
        self,
        *,
        customer_id: str | None = None,
        customer_external_id: str | None = None,
        limit: int | None = None,
    ) -> Listing[Contract]:
        """GET /contracts, all pages of `limit` each. Raises RuleBroken for two customers."""
        return self._listing(
            LIST,
            ContractPage,
            lambda page: page.contracts,
            ContractQuery,
            customer_id=customer_id,
            customer_external_id=customer_external_id,
            limit=limit,
        )

    def get(self, contract_id: str) -> Contract:
        """GET /contracts/{contractId}, the service's id or your externalId. Raises ResourceNotFound.

        The specification implies it ("Fetching one contract") and does not show it: it is read as the other
        operations on one contract are.
        """
        return self._calls.read(GET, ContractResponse, contract_id).contract

    def delete(self, contract_id: str) -> Contract:
        """DELETE /contracts/{contractId}, the service's id or your externalId. Raises ResourceNotFound."""
        return self._calls.read(DELETE, ContractResponse, contract_id).contract
