"""The glossary of src/billhook/README.md: retired words are in no name and in no sentence of the source."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import billhook

SOURCE = Path(billhook.__file__).parent

NAMES = frozenset(
    {
        *("agenda", "alarm", "bell", "courier", "doorbell", "errand", "errands", "express", "giveback"),
        *("hush", "newcomer", "outlook", "porter", "shelf", "story", "timekeeper", "upkeep"),
    }
)
"""Parts of names of modules, classes and functions that the glossary has other words for."""

PROSE = re.compile(
    r"\b(?:nobody|whoever|whatever|somebody|what came|who asks|is told|(?:let|lets|letting) go|so many"
    r"|for all that|at need|giv(?:e|es|en|ing) back|" + "|".join(sorted(NAMES - {"express"})) + r")\b",
    re.IGNORECASE,
)
"""Words and turns of phrase that hide the actor, or name a thing by a metaphor."""

NOT_YET: tuple[str, ...] = ()
"""Packages or modules, by their path, that still have some: to be emptied."""


def segments(name: str) -> set[str]:
    """The words of a name in snake_case or CamelCase."""
    return {part.lower() for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)}


def sentences(text: str) -> Iterator[tuple[int, str]]:
    """Every comment, and every string that has more than one word, with its line."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value.strip():
            yield node.lineno, node.value


@cache
def retired(package: Path) -> list[str]:
    """Each use of a retired word, as `path:line: word`."""
    found = []
    for path in sorted(package.rglob("*.py")):
        name = path.relative_to(package).as_posix()
        text = path.read_text()
        found += [f"{name}:0: {word}" for word in sorted(segments(path.stem) & NAMES)]
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                found += [f"{name}:{node.lineno}: {word}" for word in sorted(segments(node.name) & NAMES)]
        for line, sentence in sentences(text):
            found += [f"{name}:{line}: {match[0]}" for match in PROSE.finditer(" ".join(sentence.split()))]
    return found


def test_the_source_uses_the_words_of_the_glossary():
    assert [each for each in retired(SOURCE) if not each.startswith(NOT_YET)] == []


def test_an_exception_that_is_no_longer_needed_is_taken_off_the_list():
    found = retired(SOURCE)

    assert [name for name in NOT_YET if not any(each.startswith(name) for each in found)] == []


def test_a_retired_word_is_noticed_in_a_name_and_in_a_sentence(tmp_path):
    (tmp_path / "doorbell.py").write_text(
        '"""Let nobody in."""\n\n\nclass HttpPorter:\n    def hush_now(self):  # whoever\n'
        '        """Wait."""\n'
        '        logger.info("is told %s", "ringing")\n'
    )

    assert retired(tmp_path) == [
        "doorbell.py:0: doorbell",
        "doorbell.py:4: porter",
        "doorbell.py:5: hush",
        "doorbell.py:5: whoever",
        "doorbell.py:1: nobody",
        "doorbell.py:7: is told",
    ]
