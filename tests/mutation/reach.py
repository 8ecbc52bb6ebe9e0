"""Which tests reach which lines, and at what cost. `build/reach.json` keeps it.

A file of tests is traced anew when it has changed, or when a module has changed that one of its tests has reached.
"""

from __future__ import annotations

import ast
import json
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.mutation.forks import PLANT, Cost, Runner, cpu_s, run_tests
from tests.mutation.plant.dhsched_tracer import Tracer
from tests.mutation.results import FOLDER, digest_of

ROOT = FOLDER.parent.parent
SOURCE = ROOT / "src"
KEPT = ROOT / "build" / "reach.json"
TRACED = tuple(str(SOURCE / "dhsched" / part) for part in ("infer/", "worker/", "client/", "dispatch/"))
UNKNOWN = Cost(60.0, 60.0)  # Of a test that was never run: it may take as long as it wants.
TRACED_MAX_S = 1e6


class Reach:
    """The tests by the lines that they reach."""

    def __init__(self, kept: Path = KEPT) -> None:
        self._kept = kept
        self._files: dict[str, dict[str, Any]] = json.loads(kept.read_text()) if kept.exists() else {}

    def missing(self, files: Iterable[Path]) -> list[Path]:
        """Return the files of tests that must be traced."""
        return [path for path in files if not self._current(path)]

    def _current(self, path: Path) -> bool:
        known = self._files.get(str(path.relative_to(ROOT)))
        if known is None or known["digest"] != digest_of(path.read_text()):
            return False
        modules = known["modules"].items()
        return all((SOURCE / name).exists() and digest_of((SOURCE / name).read_text()) == was for name, was in modules)

    def add(self, path: Path, tests: dict[str, Any]) -> None:
        """Keep what was traced of a file's tests."""
        modules = {name for each in tests.values() for name in each["lines"]}
        self._files[str(path.relative_to(ROOT))] = {
            "digest": digest_of(path.read_text()),
            "modules": {name: digest_of((SOURCE / name).read_text()) for name in sorted(modules)},
            "tests": tests,
        }
        self._kept.parent.mkdir(exist_ok=True)
        self._kept.write_text(json.dumps(self._files))

    def failed(self) -> list[str]:
        """Return the tests that fail without a mutant: they can notice none."""
        return [test for test, each in self._tests() if not each["passed"]]

    def tests_of(self, module: str, line: int) -> list[tuple[str, Cost]]:
        """Return the tests that run the line, or else those that run its function; cheap ones first."""
        path = module.replace(".", "/") + ".py"
        source = (SOURCE / path).read_text()
        for wanted in ({line}, function_around(source, line)):
            found = [
                (test, Cost(each["cpu_s"], each["wall_s"]))
                for test, each in self._tests()
                if each["passed"] and wanted.intersection(each["lines"].get(path, ()))
            ]
            if found:
                return sorted(found, key=lambda each: each[1].cpu_s)
        return []

    def _tests(self) -> Iterator[tuple[str, dict[str, Any]]]:
        for file in self._files.values():
            yield from file["tests"].items()


def function_around(source: str, line: int) -> set[int]:
    """Return the lines of the body of the innermost function around a line."""
    inside: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = {*range(node.body[0].lineno, (node.end_lineno or node.lineno) + 1)}
            if line in lines and (not inside or len(lines) < len(inside)):
                inside = lines
    return inside


class Tracing:
    """A plugin, in a fork: writes down what each test reaches, in its own process and in those that it starts."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lines: dict[str, set[int]] = defaultdict(set)
        self._tracer = Tracer(TRACED, lambda file, line: self._lines[file].add(line))
        self._passed = True

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        others = self._folder / "others"
        others.write_text("")
        (self._folder / PLANT.name / "traced.json").write_text(json.dumps({"into": str(others), "paths": TRACED}))
        self._lines.clear()
        self._passed = True
        began, spent = os.times().elapsed, cpu_s()
        self._tracer.start()
        try:
            return (yield)
        finally:
            self._tracer.stop()
            for line in others.read_text().splitlines():
                name, _, number = line.rpartition(":")
                self._lines[name].add(int(number))
            found = {
                "passed": self._passed,
                "cpu_s": round(cpu_s() - spent, 3),
                "wall_s": round(os.times().elapsed - began, 3),
                "lines": {str(Path(name).relative_to(SOURCE)): sorted(self._lines[name]) for name in self._lines},
            }
            with (self._folder / "traced").open("a") as file:
                file.write(json.dumps([item.nodeid, found]) + "\n")
            item.session.testsfailed = 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._passed = self._passed and report.passed


def trace(reach: Reach, files: list[Path], items: Mapping[str, pytest.Item], runner: Runner) -> None:
    """Trace the tests of each file in a fork."""
    for path in files:
        tests = [(item, UNKNOWN) for item in items.values() if item.path == path]

        def job(folder: Path, tests: list[tuple[pytest.Item, Cost]] = tests) -> str:
            if not tests:
                return ""
            plugin = Tracing(folder)
            tests[0][0].config.pluginmanager.register(plugin)
            run_tests(tests, folder, prepare=lambda: None, cpu_max_s=TRACED_MAX_S)
            traced = folder / "traced"
            return traced.read_text() if traced.exists() else ""

        def done(text: str, path: Path = path) -> None:
            reach.add(path, dict(json.loads(line) for line in text.splitlines()))

        runner.run(job, done)
    runner.finish()
