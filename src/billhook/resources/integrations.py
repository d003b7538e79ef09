"""Counterparts in other systems, and in the clouds' marketplaces.

Source: spec, "Resources and their fields".
"""

from __future__ import annotations

from pydantic import Field, StrictStr

from billhook.resources.base import Resource


class CustomerIntegration(Resource):
    """A customer's counterpart at another provider.

    Source: spec, "Resources and their fields", Customer, externalIntegration.
    """

    type: StrictStr | None = Field(default=None, description="Name of the provider.", examples=["Salesforce"])
    id: StrictStr | None = Field(default=None, description="Id at the provider.", examples=["0015g00000XyZ"])
    name: StrictStr | None = Field(default=None, description="Name at the provider.", examples=["Acme"])


class ProductIntegration(Resource):
    """A product's or a credit grant's counterpart at another provider.

    Source: spec, "Resources and their fields", ContractProduct, externalIntegrations.
    """

    provider: StrictStr | None = Field(
        default=None, description="Name of the provider.", examples=["NetSuite"]
    )
    external_id: StrictStr | None = Field(default=None, description="Id at the provider.", examples=["4711"])


class _CloudSettings(Resource, register=False):
    """A place in a cloud's marketplace."""

    cloud_provider: StrictStr | None = Field(
        default=None, description="Name of the cloud provider.", examples=["AWS"]
    )
    cloud_provider_marketplace_id: StrictStr | None = Field(
        default=None, description="Id of the product in the cloud marketplace.", examples=["mp-17"]
    )


class CustomerCloudSettings(_CloudSettings):
    """A customer in a cloud's marketplace.

    Source: spec, "Resources and their fields", Customer, cloudProviderSettings.
    """

    customer_identifier: StrictStr | None = Field(
        default=None, description="Customer identifier in the cloud marketplace.", examples=["aws-cust-9"]
    )


class ProductCloudSettings(_CloudSettings):
    """A product in a cloud's marketplace.

    Source: spec, "Resources and their fields", ContractProduct, cloudProviderSettings.
    """

    dimension: StrictStr | None = Field(
        default=None, description="Dimension by which the usage is metered.", examples=["calls"]
    )
