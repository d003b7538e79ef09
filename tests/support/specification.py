"""Reads the spec's objects and bodies out of its text: tables, lists in prose, and `{...}` in the endpoints.

What comes out is plain: {title: {field: (mark, kind)}}, with the mark "*", "?" or "" and as kind a word, a
dict of fields, [kind of the items], {"map": kind} or {"one of": [values]}.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

import pytest

from billhook.fields import WireModel, sample

Fields = dict[str, Any]

WORDS = {
    "string": r"all strings|strings?( \(see \w+\))?|.*\benumeration\b.*",
    "number": r"all numbers|numbers?",
    "boolean": r"boolean",
    "integer": r"integer",
    "integer from 1": r"integer \(1 or greater\)",
    "date": r"(string )?date-times?|string,? ISO 8601 UTC",
    "object": r"object",
    "any": r"any(, .*)?",
}
PLURAL = re.compile(r"all \w+|strings|numbers|date-times")
BY_ITS_NAME = {
    "customer": "Customer",
    "contract": "Contract",
    "plan": "Plan",
    "catalogProduct": "Catalog product",
    "catalogProducts": "array of Catalog product",
    "invoice": "Invoice",
    "customField": "Custom-field definition",
    "customFields": "array of Custom-field definition",
}
"""What the bodies of the endpoints name without a kind."""


def read_specification() -> str:
    """Return the specification's text, which is not part of this repository; skip the test without it."""
    path = os.environ.get("BILLHOOK_SPEC")
    if not path:
        pytest.skip("set BILLHOOK_SPEC to the path of the specification, to compare with it")
    return Path(path).read_text(encoding="utf-8")


def unnoticed(text: str, changes: list[tuple[str, str]], read: Callable[[str], object]) -> list[str]:
    """Return which changes of the text do not change what is read from it; each applies at one place."""
    assert [old for old, _ in changes if text.count(old) != 1] == []
    stated = read(text)
    return [new for old, new in changes if read(text.replace(old, new)) == stated]


def kind_of(annotation: Any) -> str:
    """Return the kind of a field of a model in the words of a transcription."""
    simple = {str: "string", Decimal: "number", int: "integer", bool: "boolean", datetime: "date", Any: "any"}
    if annotation in simple:
        return simple[annotation]
    if isinstance(annotation, type) and issubclass(annotation, WireModel):
        return annotation.__name__
    if get_origin(annotation) is Literal or (
        isinstance(annotation, type) and issubclass(annotation, StrEnum)
    ):
        return "string"
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return kind_of(inner[0])
    if origin is list:
        return "array" if kind_of(inner[0]) == "any" else f"array of {kind_of(inner[0])}"
    if origin is dict:
        return "object" if inner[1] is Any else f"map of string to {kind_of(inner[1])}"
    return " or ".join(dict.fromkeys(kind_of(part) for part in inner if part is not NoneType))  # a union


def differences(there: Mapping[str, Fields], here: Mapping[str, Fields]) -> list[str]:
    """Return what the models have otherwise than a transcription; the order of fields does not matter."""
    found = [f"{name}: only in the transcription" for name in sorted(there.keys() - here.keys())]
    found += [f"{name}: only in the models" for name in sorted(here.keys() - there.keys())]
    found += [
        f"{name}.{field}: {there[name].get(field)} is transcribed, the model has {here[name].get(field)}"
        for name in sorted(there.keys() & here.keys())
        for field in sorted(there[name].keys() | here[name].keys())
        if there[name].get(field) != here[name].get(field)
    ]
    return found


def altered(transcription: dict[str, Any], group: str, name: str, change: dict[str, str | None]) -> Any:
    """Return a transcription with some kinds of one model changed, or fields left out that are None."""
    fields = {**transcription[group].get(name, {}), **change}
    left = {field: kind for field, kind in fields.items() if kind is not None}
    return {**transcription, group: {**transcription[group], name: left}}


def python_name(cls: type[WireModel], wire_name: str) -> str:
    """Return the name of a field in Python."""
    return next(name for name, field in cls.model_fields.items() if field.alias == wire_name)


def lists(cls: type[WireModel], wire_name: str, values: list[str]) -> bool:
    """Return whether a field recognises exactly these values as members, and any other text stays text."""
    *known, other = (
        getattr(sample(cls, **{wire_name: value}), python_name(cls, wire_name))
        for value in (*values, "NotListed")
    )
    return (
        known == values
        and all(isinstance(value, StrEnum) for value in known)
        and {*type(known[0])} == {*values}
        and type(other) is str
    )


def without_description(models: Iterable[type[WireModel]]) -> list[str]:
    """Return the fields that have no description of one line."""
    return [
        f"{cls.__name__}.{name}"
        for cls in models
        for name, field in cls.model_fields.items()
        if not field.description or "\n" in field.description
    ]


def objects_of(text: str) -> dict[str, dict[str, tuple[str, Any]]]:
    """Every object and body of the spec, by its heading, its name or its operation."""
    return Reader(text).read()


def parts(text: str) -> list[str]:
    """Split at the commas, and the `and`s, that are in no bracket."""
    found, depth = [""], 0
    for token in re.split(r"(, and |, | and |[(){}\[\]])", text):
        depth += (token in ("(", "{", "[")) - (token in (")", "}", "]"))
        if depth == 0 and token in (", and ", ", ", " and "):
            found.append("")
        else:
            found[-1] += token
    return [part for part in found if part]


def bare(fields: dict[str, tuple[str, Any]]) -> dict[str, Any]:
    """The kinds of fields, without their marks."""
    return {name: kind for name, (_, kind) in fields.items()}


class Reader:
    """Goes through the text once; a field without a kind has the one that its name had last."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.objects: dict[str, dict[str, tuple[str, Any]]] = {}
        self.known: dict[str, Any] = {}
        self.entries = dict(re.findall(r"^- (\w+) entry: (.*)\.$", text, re.MULTILINE))

    def section(self, name: str) -> str:
        return self.text.split(f"\n## {name}\n", 1)[1].split("\n## ", 1)[0]

    def read(self) -> dict[str, dict[str, tuple[str, Any]]]:
        self.resources()
        self.list_values()
        self.errors()
        self.known |= BY_ITS_NAME
        self.endpoints()
        for name, listed in self.entries.items():
            self.objects[f"{name} entry"] = self.fields(listed)
        return {
            title: {field: (mark, self.whole(kind)) for field, (mark, kind) in fields.items()}
            for title, fields in self.objects.items()
        }

    def whole(self, kind: Any) -> Any:
        """A kind with the objects it names written out."""
        if isinstance(kind, str) and kind.startswith("array of "):
            return [self.whole(kind.removeprefix("array of "))]
        if isinstance(kind, str) and kind in self.objects:
            return {name: self.whole(inner) for name, (_, inner) in self.objects[kind].items()}
        if isinstance(kind, list):
            return [self.whole(inner) for inner in kind]
        if isinstance(kind, dict) and "one of" not in kind:
            return {name: self.whole(inner) for name, inner in kind.items()}
        return kind

    # --- kinds ------------------------------------------------------------------------------------

    def fields(self, text: str, each: str | None = None) -> dict[str, tuple[str, Any]]:
        """The fields of a list: `a (string), b* (number)`, or `a: string, b?: number`, or mixed with none."""
        found: dict[str, tuple[str, Any]] = {}
        waiting: list[str] = []
        text = re.sub(r"(, plus| with) id, createdAt, updatedAt", "", text)  # as every stored resource has
        for part in parts(text):
            name, mark, stated = re.fullmatch(r"(\w+)([*?]?):? ?(.*)", part).groups()
            if stated.startswith("(") and stated.endswith(")"):
                stated = stated[1:-1]
            found[name] = (mark, stated and self.kind(stated, name))
            waiting = [] if stated and not PLURAL.fullmatch(stated) else [*waiting, name]
            if PLURAL.fullmatch(stated):  # of all since the last kind: "a, b, c (numbers)"
                found |= {each: (found[each][0], self.kind(stated)) for each in waiting}
                waiting = []
        for name, (mark, kind) in found.items():
            found[name] = (mark, kind or (self.kind(each) if each else self.known.get(name, "string")))
        self.known |= {name: kind for name, (_, kind) in found.items()}
        return found

    def kind(self, text: str, name: str = "", note: str = "") -> Any:
        text = text.strip()
        if text in ("object", "array") and (
            listed := re.match(r"(?:Entries: )?(\w+(?: \(|, ).*?)\.( |$)", note)
        ):
            kind: Any = bare(self.fields(listed[1]))
            return [kind] if text == "array" else kind
        if text.endswith("as above") or "ame shape as" in note:
            return self.known[name]
        if text == "array":
            return [f"{name} entry"] if name in self.entries else ["any"]
        if text.startswith(("{", "[")):
            inner, rest = re.fullmatch(r"[{\[](.*)[}\]](?:,? ([\w -]+))?", text).groups()
            return [self.kind(inner)] if text[0] == "[" else bare(self.fields(inner, rest))
        if text.endswith(" or null") or " or null, " in text:
            return self.kind(text.split(" or null")[0]) + " or null"
        for start, of in (("array of ", "list"), ("map of string to ", "map")):
            if text.startswith(start):
                kind = self.kind(text.removeprefix(start))
                return [kind] if of == "list" else {"map": kind}
        for word, pattern in WORDS.items():
            if re.fullmatch(pattern, text):
                return word
        return text  # the name of an object

    # --- the sections -----------------------------------------------------------------------------

    def resources(self) -> None:
        text = self.section("Resources and their fields").split("\n### Other resources\n")[0]
        of_all = re.search(
            r"^Conventions: .* Stored resources carry (.*) unless stated otherwise", text, re.M
        )
        both = of_all[1].replace("`", "").replace("(date-time)", "(date-times)")  # of createdAt as well
        self.objects["Stored resources"] = self.fields(both)
        title, columns = "", []
        for line in text.splitlines():
            if named := re.match(r"### ([^(]+?)(?: \(.*\))?$", line) or re.match(r"(\w+):$", line):
                title, columns = named[1], []
            elif line.startswith("|"):
                columns = self.row(title, line, columns)
            elif listed := re.match(r"(?:Fields|Each element of results): (.*)\.$", line):
                self.objects[title] = self.fields(listed[1])
            elif listed := re.match(r"([A-Z]\w+|Invalid-event entry[^:]*): `?\{?(\w+[: ,].*?)[}`]*\.$", line):
                self.objects[listed[1].split(" in ")[0]] = self.fields(listed[2])

    def row(self, title: str, line: str, columns: list[str]) -> list[str]:
        """A line of a table: its first tells the columns, each further one adds fields to `title`."""
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not columns or set(line) <= set("|-"):
            return columns or cells
        named, kind, *rest = cells
        note = rest[-1] if rest else ""
        required = next((cell for name, cell in zip(columns, cells, strict=True) if "Required" in name), "")
        if returned := re.search(r"additionally returns (\w+) \((\w+)\)", note):
            named, kind = returned.groups()
        for each in parts(named):
            name = each.rstrip("*?")
            mark = each.removeprefix(name) or {"yes": "*", "no": "?"}.get(re.split(r"\W", required)[0], "")
            if item := re.fullmatch(r"array of ([A-Z]\w+)", kind):  # its fields may be in the note
                listed = re.match(rf"(?:{item[1]}: )?(\w+, .*?)\.( |$)", note)
                if listed and item[1] not in self.objects:
                    self.objects[item[1]] = self.fields(listed[1])
            self.known[name] = self.kind(kind, name, note)
            self.objects.setdefault(title, {})[name] = (mark, self.known[name])
        return columns

    def list_values(self) -> None:
        """What the states' section lists for fields whose kind is only "enumeration"."""
        text = self.section("States and transitions")
        for title, field, line in re.findall(r"^(\w+) (\w*[sS]tatus)(?: values)?: (.*)$", text, re.M):
            values = re.findall(r"\b[A-Z]\w+", re.split(r"[;.]", line)[0])
            mark, _ = self.objects[title][field]
            self.known[field] = {"one of": values}
            self.objects[title][field] = (mark, self.known[field])
        self.known["status"] = "string"

    def errors(self) -> None:
        columns: list[str] = []
        first, second = re.findall(r"(?:^\|.*\n)+", self.section("Errors"), re.M)
        for line in first.splitlines():
            columns = self.row("Errors", line, columns)
        rows = re.findall(r"^\| (\w+_error) \| (\w[\w ]*) \|", second, re.M)
        for field, values in (("type", [each for each, _ in rows]), ("code", [each for _, each in rows])):
            listed = [*dict.fromkeys(value for value in values if " " not in value)]
            self.objects["Errors"][field] = (self.objects["Errors"][field][0], {"one of": listed})

    def endpoints(self) -> None:
        text = self.section("Endpoints")
        head, *operations = re.split(r"^(?=\*\*[A-Z]+ /|\| \w+ \| [A-Z]+ /)", text, flags=re.M)
        paging = self.fields(", ".join(re.findall(r"`\w+`? \(\w+\)|`\w+\?` \(\w+\)", head)).replace("`", ""))
        for operation in operations:
            if operation.startswith("|"):
                _, name, request, response = (
                    cell.strip() for cell in operation.split("\n")[0].strip("|").split("|")
                )
                body = "query" if name.startswith("GET") else "request"
                listings = [(body, request)] if re.match(r"\w+[*?]", request) else []
                listings += [("response", re.search(r"`\{(.*?)\}`", response)[1])]
            else:
                *_, name = re.findall(r"\*\*([A-Z]+ /[^*]*)\*\*", operation)
                listings = re.findall(
                    r"(?:^|[ ,;(])(request|response)[^`.;|]*?`\{([^`]*)\}`", operation, re.I | re.M
                )
                if query := re.search(r"\bquery ((?:`\w+[*?]`(?: \(\w+\))?(?:, )?)+)", operation):
                    listings.insert(0, ("query", query[1].replace("`", "").rstrip(", ")))
                columns: list[str] = []
                for line in operation.splitlines() if "| Query parameter |" in operation else ():
                    if line.startswith("|"):
                        columns = self.row(f"{name}, query", line, columns)
            for which, listed in listings:
                self.objects[f"{name}, {which.lower()}"] = self.fields(listed)
            response = self.objects.get(f"{name}, response")
            if response and "cursor" in self.objects.get(f"{name}, query", ()):  # "List endpoints share ..."
                shape = ("total", "hasMore", "nextCursor")
                self.objects[f"{name}, response"] = {**{each: paging[each] for each in shape}, **response}
