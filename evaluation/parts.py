"""Run the parts of an experiment, several at a time, and keep what they return.

A part that was run before with the same arguments, by the same code, is not run again: its rows are read from
`.parts/`. The code is what the part itself is made of, and the parts of the product that its experiment uses.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
import os
import re
import sys
import time
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from types import FunctionType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

import dhsched
from evaluation.experiment import Experiment, Part, Row, Size

PRODUCT = Path(dhsched.__file__).parent
PLAIN_STEPS = 10  # Lines of progress where there is no terminal.


def run_parts(
    experiment: Experiment,
    size: Size,
    folder: Path,
    *,
    processes: int | None = None,
    quiet: bool = False,
    only: str = "",
) -> dict[str, list[Row]]:
    """All parts' rows by the part's name; with `only`, those of this part. A later run of all keeps it."""
    folder = folder / ".parts" / experiment.name
    folder.mkdir(parents=True, exist_ok=True)
    code = code_digest(experiment)
    parts = [part for part in experiment.parts(size) if only in ("", part.name)]
    if not parts:
        names = ", ".join(part.name for part in experiment.parts(size))
        raise SystemExit(f"{experiment.name} has no part {only}; its parts are {names}")
    files = {part.name: folder / f"{part.name}-{_digest(part, code)}.json" for part in parts}
    missing = [part for part in parts if not files[part.name].exists()]
    count = 1 if experiment.alone else processes or os.cpu_count() or 1
    with _Telling(experiment.name, len(parts), len(parts) - len(missing), quiet) as telling:
        if count == 1:
            for part in missing:
                _keep(files[part.name], part.run(**part.arguments))
                telling.one_more()
        elif missing:
            _run_in_processes(missing, files, count, telling)
    return {part.name: json.loads(files[part.name].read_text()) for part in parts}


def _run_in_processes(missing: list[Part], files: dict[str, Path], count: int, telling: _Telling) -> None:
    with ProcessPoolExecutor(count, mp_context=get_context("spawn")) as pool:
        running: dict[Future[list[Row]], Part] = {pool.submit(part.run, **part.arguments): part for part in missing}
        try:
            for done in as_completed(running):
                _keep(files[running[done].name], done.result())
                telling.one_more()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _keep(file: Path, rows: list[Row]) -> None:
    """Whole or not at all: a part that was half written would be taken for a finished one."""
    draft = file.with_suffix(f".{os.getpid()}.draft")
    draft.write_text(json.dumps(rows))
    draft.replace(file)


def _digest(part: Part, code: str) -> str:
    said = json.dumps([part.run.__module__, part.run.__qualname__, part.arguments, code], sort_keys=True)
    return hashlib.sha256(said.encode()).hexdigest()[:16]


def code_digest(experiment: Experiment) -> str:
    """Of the product's parts that the experiment uses, and of what its own functions are made of.

    How a figure is drawn or a sentence worded is not part of it: hours of runs must not be lost for that.
    """
    digest = hashlib.sha256()
    for run in sorted({part.run for part in experiment.parts(Size(quick=True))}, key=lambda one: one.__qualname__):
        for made_of in _reached(run, {}).values():
            digest.update(made_of.encode())
    used = [PRODUCT / one for one in experiment.uses]
    product = [path for one in used for path in ([one] if one.is_file() else one.rglob("*"))]
    for path in sorted(path for path in product if path.suffix in (".py", ".lua")):
        digest.update(str(path.relative_to(PRODUCT)).encode() + path.read_bytes())
    return digest.hexdigest()


def _reached(function: Any, found: dict[str, str]) -> dict[str, str]:
    """The source of a function or class and of all of ours that it names, and the constants among them."""
    key = f"{function.__module__}.{function.__qualname__}"
    if key in found:
        return found
    found[key] = ast.unparse(ast.parse(inspect.getsource(function)))  # Without comments and layout.
    module = vars(sys.modules[function.__module__])
    for name in sorted({*re.findall(r"[A-Za-z_]\w*", found[key])}):
        value = module.get(name)
        if isinstance(value, FunctionType | type) and value.__module__.startswith("evaluation."):
            _reached(value, found)
        elif isinstance(value, int | float | str | tuple):
            found[f"{function.__module__}.{name}"] = repr(value)
    return found


class _Telling:
    """A progress bar on a terminal; elsewhere a line now and then."""

    def __init__(self, name: str, total: int, done: int, quiet: bool) -> None:
        self._name, self._total, self._done, self._quiet = name, total, done, quiet
        self._console = Console(stderr=True)
        self._began = time.monotonic()
        self._bar: Progress | None = None

    def __enter__(self) -> _Telling:
        if self._done and not self._quiet:
            self._console.print(f"{self._name}: {self._done} of {self._total} parts were run before")
        if self._console.is_terminal and not self._quiet:
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
            self._bar = Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=self._console)
            self._task = self._bar.add_task(self._name, total=self._total, completed=self._done)
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def one_more(self) -> None:
        self._done += 1
        if self._bar is not None:
            self._bar.advance(self._task)
        elif not self._quiet and (self._done == self._total or self._done % max(1, self._total // PLAIN_STEPS) == 0):
            took_s = time.monotonic() - self._began
            self._console.print(f"{self._name}: {self._done} of {self._total} parts, {took_s:.0f} s", highlight=False)
