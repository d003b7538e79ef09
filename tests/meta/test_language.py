"""The glossary of src/billhook/README.md: retired words are in no name, sentence of the source or page."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from support.inner_words import inner_words
from support.pages import PAGES
from support.source import SOURCE, Module, modules

NAMES = frozenset(
    {
        *("agenda", "alarm", "bell", "courier", "doorbell", "errand", "errands", "express", "giveback"),
        *("hush", "newcomer", "outlook", "porter", "shelf", "story", "timekeeper", "upkeep"),
    }
)
"""Parts of names of modules, classes and functions that the glossary has other words for."""
ONLY_IN_NAMES = frozenset({"express", "missed", "siblings", "told", "untold"})
"""Words that do in a sentence, and in a name do not say what it has."""

TURNS = (
    *("nobody", "whoever", "somebody", "what came", "who asks", "(?:let|lets|letting) go", "so many"),
    *("for all that", "at need", "giv(?:e|es|en|ing) back"),
)
"""Turns of phrase that hide the actor."""


def _any_of(*words: str) -> re.Pattern[str]:
    return re.compile(rf"\b(?:{'|'.join(words)})\b", re.IGNORECASE)


PAGE_PROSE = _any_of(*TURNS, *sorted(NAMES - ONLY_IN_NAMES))
"""What no page says: a turn of phrase that hides the actor, or a metaphor for a thing that has a name."""
PROSE = _any_of(*TURNS, "whatever", "is told", *sorted(NAMES - ONLY_IN_NAMES))
"""What no comment, docstring, message or text of the source says."""

_LOUD = {"warning", "error", "exception", "critical"}
RECORDED = Path(__file__).parents[1] / "component" / "cli" / "recorded"
_OF_THE_SERVICE = {"api.txt", "refusals.service.txt", "subscribe.txt"}
"""Outputs about the service's plans, which contracts have."""
NO_VERBS = frozenset(
    {
        *("A", "All", "An", "As", "At", "Before", "Both", "Each", "For", "In", "Is", "It", "On", "One"),
        *("The", "There", "This", "What", "Whether", "Where", "Who", "With"),
    }
)
"""Words that begin a noun phrase or a subordinate clause, and so no docstring of a function."""

MAY_BE_NOUNS = {"property", "cached_property", "group"}
DOCSTRINGS_NOT_YET = ("resources/", "sandbox/")
"""Packages whose docstrings may still begin otherwise."""


def segments(name: str) -> set[str]:
    """The words of a name in snake_case or CamelCase."""
    return {part.lower() for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)}


def sentences(module: Module) -> Iterator[tuple[int, str]]:
    """Every comment that may have a retired word, and every string of several words, with its line."""
    if any("#" in line and PROSE.search(line) for line in module.text.splitlines()):
        for token in tokenize.generate_tokens(io.StringIO(module.text).readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string
    for node in module.nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value.strip():
            yield node.lineno, node.value


def retired(package: Path) -> list[str]:
    """Each use of a retired word, as `path:line: word`."""
    found, names = [], NAMES | ONLY_IN_NAMES
    for name, module in modules(package).items():
        found += [f"{name}:0: {word}" for word in sorted(segments(Path(name).stem) & names)]
        for node in module.nodes:
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                found += [f"{name}:{node.lineno}: {word}" for word in sorted(segments(node.name) & names)]
        for line, sentence in sentences(module):
            found += [f"{name}:{line}: {match[0]}" for match in PROSE.finditer(" ".join(sentence.split()))]
    return found


def on_pages(pages: Mapping[str, str]) -> list[str]:
    """Each use of a retired word on a page, as `page:line: word`."""
    return [
        f"{name}:{number}: {match[0]}"
        for name, text in pages.items()
        for number, line in enumerate(text.splitlines(), 1)
        for match in PAGE_PROSE.finditer(line)
    ]


def _attributes(decorators: Iterable[ast.expr]) -> set[str]:
    """The last names of decorators: `property`, `group`."""
    targets = (node.func if isinstance(node, ast.Call) else node for node in decorators)
    return {node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "") for node in targets}


def no_imperatives(package: Path) -> list[str]:
    """Public functions whose docstring does not begin with a verb: properties and click's groups may."""
    found = []
    for name, module in modules(package).items():
        for node in module.nodes:
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or node.name.startswith("_"):
                continue
            docstring = ast.get_docstring(node)
            if docstring is None or _attributes(node.decorator_list) & MAY_BE_NOUNS:
                continue
            first = docstring.split()[0].rstrip(",.:;")
            plural = first.endswith("s") and not first.endswith("ss")
            if not re.fullmatch("[A-Z][a-z]+", first) or first in NO_VERBS or plural:
                found.append(f"{name}:{node.lineno}: {first}")
    return found


def messages(module: Module) -> Iterator[tuple[int, str]]:
    """The texts of log records from warning on, with their lines, also where a call is given a name."""
    for function in module.nodes:
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        texts: dict[str, list[tuple[int, str]]] = {}
        loud: list[ast.expr] = []
        for node in ast.walk(function):
            if isinstance(node, ast.Assign):
                names = [one.id for one in ast.walk(node.targets[0]) if isinstance(one, ast.Name)]
                for name in names:
                    texts.setdefault(name, []).extend(_texts(node.value))
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                is_log = node.func.attr in _LOUD and getattr(node.func.value, "id", "") == "logger"
                loud += node.args[:1] if is_log else []
        for each in loud:
            yield from texts.get(each.id, []) if isinstance(each, ast.Name) else _texts(each)


def _texts(value: ast.expr) -> list[tuple[int, str]]:
    constants = (one for one in ast.walk(value) if isinstance(one, ast.Constant))
    return [(one.lineno, one.value) for one in constants if isinstance(one.value, str)]


def _lines(paths: Iterable[Path]) -> Iterator[tuple[str, str]]:
    for path in paths:
        for number, line in enumerate(path.read_text().splitlines(), 1):
            yield f"{path.name}:{number}", line


def test_who_reads_pages_and_messages_needs_no_word_of_the_inside():
    templates = sorted((SOURCE / "dashboard" / "templates").glob("*.html"))
    prose = [
        (place, re.sub(r"{#.*?#}|{%.*?%}|{{.*?}}|<[^>]*>", "", line)) for place, line in _lines(templates)
    ]
    outputs = [*RECORDED.glob("*.txt"), *(RECORDED / "help").glob("*.txt"), SOURCE / "cli" / "RUNBOOK.md"]
    printed = _lines(path for path in outputs if path.name not in _OF_THE_SERVICE)
    logged = [
        (f"{name}:{line}", text)
        for name, module in modules(SOURCE).items()
        if not name.startswith("sandbox/")
        for line, text in messages(module)
    ]

    assert len(logged) > 50
    assert inner_words([*prose, *printed, *logged]) == []


def test_a_word_of_the_inside_is_noticed_in_a_line_and_in_a_record_and_a_public_name_is_not(tmp_path):
    lines = ["twin of 6", "--twins", "twin_of", '"state": "planned"', "Leases expire", "settled"]
    (tmp_path / "one.py").write_text(
        'def f():\n    text, why = "could not settle %s", 1\n    logger.error(text, why)\n'
        '    logger.info("a lease")\n    logger.warning("it is planned")\n'
    )
    (module,) = modules(tmp_path).values()

    assert inner_words([("a", each) for each in lines]) == ["a: twin", "a: Leases", "a: settled"]
    assert inner_words([(str(line), text) for line, text in messages(module)]) == ["2: settle", "5: planned"]


def test_the_source_uses_the_words_of_the_glossary():
    assert retired(SOURCE) == []


def test_the_pages_use_the_words_of_the_glossary():
    assert on_pages(PAGES) == []


def test_docstrings_of_public_functions_begin_with_a_verb():
    assert [each for each in no_imperatives(SOURCE) if not each.startswith(DOCSTRINGS_NOT_YET)] == []


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


def test_a_name_that_does_not_say_what_it_has_is_noticed_and_the_word_in_a_sentence_is_not(tmp_path):
    (tmp_path / "siblings.py").write_text('"""Its siblings are told."""\n\n\ndef untold(): ...\n')

    assert retired(tmp_path) == ["siblings.py:0: siblings", "siblings.py:4: untold"]


def test_a_retired_word_on_a_page_is_noticed():
    assert on_pages({"README.md": "Fine.\nA doorbell for whoever rings, whatever happens."}) == [
        "README.md:2: doorbell",
        "README.md:2: whoever",
    ]


def test_a_docstring_without_a_verb_is_noticed(tmp_path):
    noticed = {}
    for number, docstring in enumerate(
        ["Return it.", "Pass it on.", "The body.", "`data`, decoded.", "Pages of it.", "is it?"]
    ):
        method = f'    def method(self):\n        """{docstring}"""\n'
        (tmp_path / f"{number}.py").write_text(
            f"class One:\n{method}\n    @property\n{method}\n    @cli.group()\n{method}"
        )
        noticed[f"{number}.py:2: " + docstring.split()[0].rstrip(",.")] = docstring

    assert [noticed[one] for one in no_imperatives(tmp_path)] == [
        "The body.", "`data`, decoded.", "Pages of it.", "is it?",
    ]  # fmt: skip
