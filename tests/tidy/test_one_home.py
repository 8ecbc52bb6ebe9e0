"""Rules that have one home in the source: errors, HTTP calls, event loops. These tests read files and run nothing."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

from dhsched import errors
from tests.harness.tree import PACKAGE, ROOT, modules

OPEN_SESSIONS = ("client/http.py", "client/blocking.py", "avatar/publisher.py", "worker/watchdog.py")
"""The caller, with an event loop and without; a WebSocket to a room; a thread beside a blocked event loop."""
SHORT_COMMANDS = ("calibrate", "cells", "demo", "doctor", "events", "key", "live", "store")


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
    """client/calls.py knows replicas, deadlines, tokens and refusals. Benches load servers, and stand apart."""
    calls = re.compile(r"ClientSession\(|urllib\.request|^(import|from) (http\.client|requests|httpx)", re.MULTILINE)
    found = {path.relative_to(PACKAGE).as_posix() for path in modules() if calls.search(path.read_text())}
    assert {each for each in found if not each.startswith("bench/")} == {*OPEN_SESSIONS}


def test_there_is_one_way_to_run_a_role_and_one_rule_for_its_garbage() -> None:
    """web/running.py runs the loop and has the rule of pauses.py applied. Benches measure, and stand apart."""
    files = [*modules(), *sorted((ROOT / "evaluation").rglob("*.py"))]
    text = {path.relative_to(ROOT).as_posix().removeprefix("src/dhsched/"): path.read_text() for path in files}
    text = {path: each for path, each in text.items() if not path.startswith("bench/")}
    assert {path for path, each in text.items() if "asyncio.Runner(" in each} == {"web/running.py", "cli/bench.py"}
    assert {path for path, each in text.items() if re.search(r"\bgc\.\w+\(", each)} == {"pauses.py"}
    # Short commands, and experiments that start processes.
    elsewhere = {path for path, each in text.items() if "asyncio.run(" in each and not path.startswith("evaluation/")}
    assert elsewhere == {f"cli/{name}.py" for name in SHORT_COMMANDS}


PAGES = ROOT / "src" / "dhsched"
THEME = PAGES / "web" / "page" / "theme.css"
STYLES = sorted({*PAGES.glob("*/page/*.css")} - {THEME})
RULE = re.compile(r"([^{};]+)\{([^{}]*)\}")


def declarations(style: Path) -> set[tuple[str, str]]:
    """What a stylesheet declares for which selector, outside of media queries."""
    text = re.sub(r"/\*.*?\*/|@media[^{]*\{(?:[^{}]*\{[^{}]*\})*[^{}]*\}", "", style.read_text(), flags=re.DOTALL)
    return {
        (selector.strip(), " ".join(each.split()))
        for selectors, body in RULE.findall(text)
        for selector in selectors.split(",")
        for each in body.split(";")
        if each.strip()
    }


def test_what_pages_have_in_common_is_in_their_theme() -> None:
    assert len(STYLES) == 3
    for style in STYLES:
        again = declarations(style) & declarations(THEME)
        assert not again, f"{style.name}: theme.css has this already: {sorted(again)}"
    room, *console = (declarations(style) for style in sorted(STYLES, key=lambda style: style.name != "live.css"))
    both = room & set().union(*console)
    assert len(both) <= 3, f"the room's page and the console both have this, move it to theme.css: {sorted(both)}"
