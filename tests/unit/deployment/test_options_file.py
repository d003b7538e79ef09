"""A file of options is read as systemd reads an EnvironmentFile=, which is src/basic/env-file.c there."""

from __future__ import annotations

import pytest

from billhook.deployment.options_file import parse_options, quoted


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("KEY=a$b&c;d", {"KEY": "a$b&c;d"}),
        ("KEY=$(touch /tmp/x)`id`", {"KEY": "$(touch /tmp/x)`id`"}),
        ("A=1\n# B=2\n; C=3\n\n  D = 4  \n", {"A": "1", "D": "4"}),
        ('A=\'single $x \\n\' \nB="double \\$x \\" \\n"', {"A": "single $x \\n", "B": 'double $x " \\n'}),
        ("A='one'\"two\"three", {"A": "onetwothree"}),
        ("A=it's", {"A": "it's"}),
        ("A=one\\\ntwo\nB=3", {"A": "onetwo", "B": "3"}),
        ('A="one\ntwo"\nB=3', {"A": "one\ntwo", "B": "3"}),
        ("A=a\\ b\\  ", {"A": "a b "}),
        ("# a comment that goes on \\\nA=1\nB=2", {"B": "2"}),
        ("no assignment\n1A=1\nA-B=2\nA=\nexport B=3", {"A": ""}),
        ("A=1\r\nB=2\r\n", {"A": "1", "B": "2"}),
        ("A='never closed\nB=2", {"A": "never closed\nB=2"}),
        ("A=1\nA=2", {"A": "2"}),
        ("A=x\\", {"A": "x"}),
        ("", {}),
    ],
)
def test_a_file_is_read_as_systemd_reads_it(text: str, options: dict[str, str]) -> None:
    assert parse_options(text) == options


@pytest.mark.parametrize("value", ["plain", "a b", "x?y=1&z=2", "a#b", "50%", "~/x", ""])
def test_a_quoted_value_is_read_as_it_was(value: str) -> None:
    assert parse_options(f"A={quoted(value)}\n") == {"A": value}
