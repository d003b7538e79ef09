"""Contracts. Source: spec, "Endpoints", Contracts: there is no operation that fetches one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from billhook.client.operation import ApiOperation
from billhook.client.operations.group import ApiGroup, encode_body
from billhook.client.paging import Listing
from billhook.resources import Contract, ContractPage, ContractQuery, ContractResponse, NewContract

__all__ = ["CREATE", "DELETE", "GET", "LIST", "Contracts"]

CREATE = ApiOperation("POST", "/contracts", repeatable=False)
LIST = ApiOperation("GET", "/contracts", repeatable=True)
# Implied by the specification, which shows neither its request nor its response: as those of the others.
GET = ApiOperation("GET", "/contracts/{contractId}", repeatable=True)
# A second DELETE would be answered "no such contract", as if the first had done nothing.
DELETE = ApiOperation("DELETE", "/contracts/{contractId}", repeatable=False)


class Contracts(ApiGroup):
    """What customers have agreed to."""

    def create(self, contract: NewContract | Mapping[str, Any]) -> Contract:
        """POST /contracts. Raises RuleBroken for planId beside products, and for neither plan nor name."""
        return self._session.call(CREATE, ContractResponse, body=encode_body(NewContract, contract)).contract

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
        return self._session.call(GET, ContractResponse, contract_id).contract

    def delete(self, contract_id: str) -> Contract:
        """DELETE /contracts/{contractId}, the service's id or your externalId. Raises ResourceNotFound."""
        return self._session.call(DELETE, ContractResponse, contract_id).contract
