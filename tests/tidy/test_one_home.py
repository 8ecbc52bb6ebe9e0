"""Rules that have one home in the source: errors, and HTTP calls. These tests read files and run nothing."""

from __future__ import annotations

import ast
import inspect
import re

from dhsched import errors
from tests.harness.tree import PACKAGE, modules

OPEN_SESSIONS = ("client/http.py", "avatar/publisher.py", "worker/watchdog.py")
"""The caller; a WebSocket to a room; a thread that speaks while the event loop is blocked."""


def test_the_error_tree_is_complete() -> None:
    """Every error raised on purpose is in errors.py and drawn there. A Problem needs the table of codes beside it."""
    known = {name for name, each in vars(errors).items() if inspect.isclass(each) and issubclass(each, Exception)}
    elsewhere = {
        f"{path.relative_to(PACKAGE)}: {node.name}"
        for path in modules()
        if path != PACKAGE / "errors.py"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef) and {ast.unparse(base) for base in node.bases} & known
    }
    assert elsewhere == {"web/problems.py: Problem"}
    drawn = re.findall(r"^ *([A-Z]\w+)(?: {2}|$)", (errors.__doc__ or "").split("Losing a race")[0], re.MULTILINE)
    assert {*drawn} == known | {"Problem"}


def test_there_is_one_http_caller() -> None:
    """client/http.py knows replicas, deadlines, tokens and refusals. Benches load servers, and stand apart."""
    calls = re.compile(r"ClientSession\(|urllib\.request|^import (http\.client|requests|httpx)", re.MULTILINE)
    found = {path.relative_to(PACKAGE).as_posix() for path in modules() if calls.search(path.read_text())}
    assert {each for each in found if not each.startswith("bench/")} == {*OPEN_SESSIONS}
