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
# Implied by the specification, which shows neither its request nor its response.
GET = ApiOperation("GET", "/contracts/{contractId}", repeatable=True)
# A second DELETE would be answered "no such contract", as if the first had done nothing.
DELETE = ApiOperation("DELETE", "/contracts/{contractId}", repeatable=False)


class Contracts(ApiGroup):
    """Contracts of customers."""

    def create(self, contract: NewContract | Mapping[str, Any]) -> Contract:
        """Create a contract. Calls POST /contracts.

        Raises RuleBroken for a planId together with products, and for neither a plan nor a name.
        """
        return self._session.call(CREATE, ContractResponse, body=encode_body(NewContract, contract)).contract

    def list(
        self,
        *,
        customer_id: str | None = None,
        customer_external_id: str | None = None,
        limit: int | None = None,
    ) -> Listing[Contract]:
        """List the contracts, of one customer or all, in pages of `limit`. Calls GET /contracts.

        Raises RuleBroken if both a customer id and an external id are given.
        """
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
        """Get the contract with this id or externalId. Calls GET /contracts/{contractId}.

        The specification implies the operation ("Fetching one contract") without showing it; the response is
        parsed like those of the other operations on one contract. Raises ResourceNotFound.
        """
        return self._session.call(GET, ContractResponse, contract_id).contract

    def delete(self, contract_id: str) -> Contract:
        """Delete the contract with this id or externalId. Calls DELETE /contracts/{contractId}.

        Raises ResourceNotFound.
        """
        return self._session.call(DELETE, ContractResponse, contract_id).contract
