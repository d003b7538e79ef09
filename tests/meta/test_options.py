"""An option that is declared is read somewhere: one that nothing reads would be set in vain."""

from __future__ import annotations

import ast

from billhook.handlers.options import OPTIONS as HANDLER_OPTIONS
from billhook.settings import OPTIONS
from billhook.signing.schemes import SCHEMES
from support.source import modules


def read_in_code(declared_in: str, *, of: str = "") -> set[str]:
    """The attributes that any other module reads, of what has a name with this ending."""
    return {
        node.attr
        for name, module in modules().items()
        if name != declared_in
        for node in module.nodes
        if isinstance(node, ast.Attribute) and ast.unparse(node.value).endswith(of)
    }


def test_every_option_is_read_as_an_attribute_of_the_settings_or_by_a_scheme():
    by_schemes = {option for scheme in SCHEMES.values() for option in scheme.options}
    read = read_in_code("settings.py", of="settings") | by_schemes | {"secrets"}  # by read_secrets

    assert [option.key for option in OPTIONS if option.attribute not in read] == []
    assert "no_such_option" not in read


def test_every_option_of_a_handler_is_read():
    read = read_in_code("handlers/options.py")

    assert [name for name in HANDLER_OPTIONS if name not in read] == []
    assert "no_such_option" not in read
