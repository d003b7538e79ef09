"""RESOURCES and the package's exports."""

from __future__ import annotations

import pytest
from pydantic import StrictStr

import billhook.resources
from billhook.resources import RESOURCES, Customer, Resource
from billhook.resources.base import _registered


def test_a_class_with_a_name_of_its_own_is_all_that_a_new_resource_needs():
    class Voucher(Resource):
        """An object that did not exist, and does not after the test."""

        voucher_code: StrictStr

    try:
        assert RESOURCES["Voucher"] is Voucher
        assert Voucher.from_json(b'{"voucherCode":"v"}').to_request() == b'{"voucherCode":"v"}'
    finally:
        del _registered["Voucher"]
    with pytest.raises(TypeError, match="there is a resource Customer already: choose another class name"):
        type("Customer", (Resource,), {"__module__": __name__})

    assert RESOURCES["Customer"] is Customer


def test_an_unregistered_base_class_is_no_resource():
    class Common(Resource, register=False):
        """Fields for others."""

    assert "Common" not in RESOURCES
    assert not {"Resource", "Stored", "Page", "CountedPage"} & set(RESOURCES)


def test_the_resources_are_read_only():
    with pytest.raises(TypeError, match="does not support item assignment"):
        RESOURCES["Other"] = Customer


def test_the_package_exports_every_resource():
    assert set(RESOURCES) <= set(billhook.resources.__all__)
    assert all(getattr(billhook.resources, name) is cls for name, cls in RESOURCES.items())
