"""The instructions of a Dockerfile, read without an engine."""

from __future__ import annotations

import re

from support.pages import ROOT

Stage = list[tuple[str, str]]


def stages(text: str = (ROOT / "deploy" / "Dockerfile").read_text()) -> list[Stage]:
    """Instruction and argument of each line of a Dockerfile, by stage."""
    text = re.sub(r"(?m)^\s*#.*\n", "", text)
    lines = [line.split(None, 1) for line in re.sub(r"\\\n\s*", "", text).splitlines() if line]
    found: list[Stage] = []
    for name, argument in lines:
        if name == "FROM":
            found.append([])
        if found:
            found[-1].append((name, argument))
    return found


def of(stage: Stage, name: str) -> list[str]:
    """The arguments of the instructions of one name."""
    return [argument for instruction, argument in stage if instruction == name]
