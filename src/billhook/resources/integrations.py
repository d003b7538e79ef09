"""Counterparts in other systems, and in the clouds' marketplaces.

Source: spec, "Resources and their fields".
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StrictStr

from billhook.resources.base import Resource


class CustomerIntegration(Resource):
    """A customer's counterpart at another provider.

    Source: spec, "Resources and their fields", Customer, externalIntegration.
    """

    type: Annotated[StrictStr | None, Field(description="Name of the provider.", examples=["Salesforce"])] = (
        None
    )
    id: Annotated[StrictStr | None, Field(description="Id at the provider.", examples=["0015g00000XyZ"])] = (
        None
    )
    name: Annotated[StrictStr | None, Field(description="Name at the provider.", examples=["Acme"])] = None


class ProductIntegration(Resource):
    """A product's or a credit grant's counterpart at another provider.

    Source: spec, "Resources and their fields", ContractProduct, externalIntegrations.
    """

    provider: Annotated[
        StrictStr | None, Field(description="Name of the provider.", examples=["NetSuite"])
    ] = None
    external_id: Annotated[StrictStr | None, Field(description="Id at the provider.", examples=["4711"])] = (
        None
    )


class _CloudSettings(Resource, register=False):
    """A place in a cloud's marketplace."""

    cloud_provider: Annotated[
        StrictStr | None, Field(description="Name of the cloud provider.", examples=["AWS"])
    ] = None
    cloud_provider_marketplace_id: Annotated[
        StrictStr | None, Field(description="Id of the product in the cloud marketplace.", examples=["mp-17"])
    ] = None


class CustomerCloudSettings(_CloudSettings):
    """A customer in a cloud's marketplace.

    Source: spec, "Resources and their fields", Customer, cloudProviderSettings.
    """

    customer_identifier: Annotated[
        StrictStr | None,
        Field(description="Customer identifier in the cloud marketplace.", examples=["aws-cust-9"]),
    ] = None


class ProductCloudSettings(_CloudSettings):
    """A product in a cloud's marketplace.

    Source: spec, "Resources and their fields", ContractProduct, cloudProviderSettings.
    """

    dimension: Annotated[
        StrictStr | None, Field(description="Dimension by which the usage is metered.", examples=["calls"])
    ] = None
