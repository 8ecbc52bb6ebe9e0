"""Words that have one meaning, in the names of the source (CONTRIBUTING.md, Style, Words). These tests run nothing."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.harness.tree import PACKAGE, modules

RETIRED = {
    "because": ("cause", ()),
    "look": (
        "round, read or check",
        (
            "avatar/",
            "client/models/",
            "dispatch/recovery/",
            "ownership/",
            "store/records/recovering.py",
            "store/steps/",
        ),
    ),
    "mind": ("the verb for what is done", ()),
    "owe": ("wait, or the noun for what is missing", ()),
    "wish": ("request", ()),
}
"""Each word, what to say instead, and the parts in which it has its one meaning: a look is the step, or a face."""


def names_in(path: Path) -> Iterator[str]:
    """The names that a file gives: of functions and classes, arguments, variables and attributes."""
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()) | ast.arg(arg=name):
                yield name


def test_no_name_has_a_word_that_was_given_up() -> None:
    wrong = []
    for path in modules():
        where = path.relative_to(PACKAGE).as_posix()
        for name in sorted({*names_in(path)}):
            words = {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name)}
            for word in sorted(words & {*RETIRED}):
                instead, homes = RETIRED[word]
                if not where.startswith(homes or ("-",)):
                    wrong.append(f"{where}: {name}: `{word}` has another meaning here; say {instead}")
    assert wrong == []
