"""A secret that is pasted where the path of its file is meant: no command prints it, and all say so."""

from __future__ import annotations

import pytest

from billhook.basics.file_modes import read_secret_file, shown_path
from billhook.errors import ConfigError
from billhook.settings import OPTIONS
from support.signing import SECRET

PARTS = ("hunter2correct", "Zq9vXw7LkT3mB8nR")
"""Each secret has one of them."""
PASTED = (
    "hunter2correct",
    "anna:hunter2correct",
    "hunter2correct.battery.staple",
    "mailto://user:hunter2correct@mail.example",
    "slack://hunter2correct/Zq9vXw7LkT3mB8nR",
    "Zq9vXw7LkT3mB8nR/a+b/hunter2correct==",
    "/Zq9vXw7LkT3mB8nR/hunter2correct",
    "./hunter2correct",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJodW50ZXIyY29ycmVjdCJ9.Zq9vXw7LkT3mB8nR",
    "hunter2correct" * 40,
    "Zq9vXw7LkT3mB8nR/" * 40,
    "hunter2correct Zq9vXw7LkT3mB8nR",
)
COMMANDS = (
    ["doctor"],
    ["doctor", "--json"],
    ["check"],
    ["check", "--json"],
    ["serve", "--bind", "127.0.0.1:0"],
    ["status"],
    ["options"],
    ["notify", "test"],
    ["send", "PingTest", "--to", "http://127.0.0.1:9/"],
    ["reconcile", "--since", "1h"],
)
FILES = [option for option in OPTIONS if option.if_read]
SAID = "(not shown: it may be the secret itself"


@pytest.mark.parametrize("option", FILES, ids=[option.attribute for option in FILES])
def test_no_command_prints_a_secret_that_an_option_has_in_place_of_a_path(run, caplog, option):
    assert len(FILES) == 5
    others = {} if option.attribute == "secrets_file" else {"SECRETS": SECRET}
    commands = list(COMMANDS)
    for number, pasted in enumerate(PASTED):
        saying = []
        for command in commands:
            result = run(*command, **others, **{option.key.removeprefix("BILLHOOK_"): pasted})
            said = result.output + caplog.text + repr(result.exception)
            assert not any(part in said for part in PARTS), (command, pasted)
            if f"{option.key} {SAID}" in said:
                saying.append(command)
            caplog.clear()
        assert saying, pasted
        # Of the next one all commands in turn, beside one that says it.
        commands = [saying[0], *COMMANDS[number % 3 :: 3]]


@pytest.mark.parametrize("pasted", PASTED)
@pytest.mark.parametrize(
    "command",
    [
        ["send", "PingTest", "--to", "http://127.0.0.1:9/"],
        ["sandbox", "--bind", "127.0.0.1:0"],
        ["deliveries", "forward", "1", "--to", "http://127.0.0.1:9/"],
        ["doctor", "signature", "--request", "request.http"],
    ],
    ids=["send", "sandbox", "forward", "signature"],
)
def test_nor_one_that_a_command_is_given(run, tmp_path, command, pasted):
    (tmp_path / "request.http").write_bytes(b"POST / HTTP/1.1\r\nHost: x\r\n\r\n{}")

    result = run(*command, "--secret-file", pasted)

    assert result.exit_code != 0
    assert not any(part in result.output + repr(result.exception) for part in PARTS)
    assert f"--secret-file {SAID}" in result.output


def test_a_path_is_shown_where_its_folder_or_its_name_looks_like_one(tmp_path, monkeypatch):
    """The control: a mistyped path is found by its text."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").write_text("x")
    (tmp_path / "folder").mkdir()
    paths = ["there", "secrte.txt", "folder/none", f"{tmp_path}/none", f"{tmp_path}/none/none", "/etc/none"]

    assert [shown_path(path) for path in paths] == [repr(path) for path in paths]
    with pytest.raises(ConfigError, match=r"^BILLHOOK_X 'secrte.txt' cannot be read: No such file"):
        read_secret_file("BILLHOOK_X", "secrte.txt")
