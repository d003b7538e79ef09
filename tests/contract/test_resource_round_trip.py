"""cls.from_json(it.to_json()) == it, for every resource and any values."""

from __future__ import annotations

from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from billhook.errors import InvalidResource, RuleBroken
from billhook.resources import RESOURCES
from support.strategies import JSON, objects_of

any_resource = st.sampled_from(sorted(RESOURCES))


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(name=any_resource, data=st.data())
def test_every_resource_survives_a_round_trip(name: str, data: st.DataObject):
    cls = RESOURCES[name]
    try:
        resource = cls.model_validate(data.draw(objects_of(cls)), by_alias=True, by_name=False)
    except RuleBroken:  # a limit over 1000
        reject()

    again = cls.from_json(resource.to_json())

    assert again == resource
    assert again.model_extra == resource.model_extra
    assert again.to_json() == resource.to_json()
    assert again.to_request() == resource.to_request()
    assert again.to_response() == resource.to_response()


@given(name=any_resource, data=st.data())
def test_any_json_is_a_resource_or_a_resource_error(name: str, data: st.DataObject):
    cls = RESOURCES[name]
    aliases = [field.alias for field in cls.model_fields.values()]
    hostile = st.fixed_dictionaries({}, optional=dict.fromkeys(aliases, JSON)) | JSON

    try:
        resource = cls.from_wire(data.draw(hostile))
    except (InvalidResource, RuleBroken):
        return

    assert cls.from_json(resource.to_json()) == resource
