"""Commands in texts go through `billhook.errors.program`, which knows what was called."""

from __future__ import annotations

import ast

from billhook.errors.program import COMMAND
from support.source import modules

# What is raised converts itself, as errors and findings do; a problem becomes a finding.
THROUGH = {"in_program", "Finding", "Problem"}
# The texts of exceptions, and the meaning of options, which is the README's table too.
PASSED_ON = {"errors/framework.py", "settings.py"}
EXEMPT = {
    "cli/events.py": ["`billhook events` lists the known ones"],  # raised
    "basics/engine_kinds.py": ["billhook worker"],  # of findings, errors and the help of an option
    "doctor/deliveries.py": ["worker: `billhook serve` starts one"],  # of findings
    "inbox/running/filters.py": ["see `billhook failures list`"],  # the help of an option
    "doctor/runbook.py": ["`billhook runbook "],  # of its text, which the command and the page convert
    "doctor/inbox.py": [  # of findings
        "start one: billhook worker",
        "`billhook capture --to FOLDER`",
        "`billhook workers` says where",
        "`billhook actions` says who holds it",
    ],
}


def bare_hints(tree: ast.AST) -> list[str]:
    """The texts with a command that are no docstrings, and neither raised nor made by the function."""
    found = []
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Raise):
            continue
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        if isinstance(node, ast.Call) and getattr(node.func, "id", None) in THROUGH:
            continue
        if isinstance(node, ast.keyword) and node.arg == "help":
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and COMMAND.search(node.value):
            found.append(node.value)
        found += bare_hints(node)
    return found


def test_no_text_names_a_command_by_itself():
    found = {}
    for name, module in modules().items():
        texts, exempt = bare_hints(module.nodes[0]), EXEMPT.get(name, [])
        left = [one for one in texts if not any(each in one for each in exempt)]
        if left and name not in PASSED_ON:
            found[name] = left

    assert found == {}
