"""Mechanical mutants of the services around the protocol, and what notices them: a sample, drawn by a seed.

Each mutant is tried in a fork of this process (forks.py), against the tests that reach its line (reach.py), cheap ones
first, until one fails or the mutant has had its CPU time. Processes that a test starts have the mutant too
(plant/sitecustomize.py).
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests.mutation.forks import PLANT, Cost, Runner, collected, run_tests
from tests.mutation.plant.planted import Planted
from tests.mutation.python_mutants import PythonMutant, mutants
from tests.mutation.reach import ROOT, SOURCE, Reach, trace
from tests.mutation.results import Results, Row, digest_of, reasons
from tests.mutation.swap import swap

SEED, SAMPLE = 18, 300
CPU_MAX_S = 30.0  # For one mutant with unit tests, and as much with others. What nothing has noticed by then survives.
AT_ONCE = int(os.environ.get("MUTANTS_AT_ONCE", "2"))  # Mutants that are tried at the same time.
UNIT = "tests/unit/"
MODULES = ("infer/*", "worker/*", "client/stream", "dispatch/recovery/*", "dispatch/worker_link")
"""The modules that mutants are drawn from."""
INTEGRATION = (
    *(
        "blame",
        "blocked_loop",
        "child_journals",
        "cli_health",
        "client",
        "client_turns",
        "crash_reasons",
        "cut_off_controller",
    ),
    *("devices", "dispatch_replicas", "drain", "embedded_worker", "emits", "exec", "frame_bounds", "homes"),
    *("hostile_worker", "input_faults", "input_path", "input_runs", "journals", "live_logs", "loops", "machine_keys"),
    *("process_per_live", "processes", "quota", "recovering", "recovery", "sessions", "shares", "speak", "standstill"),
    *("terms", "unplaceable", "values", "vanished_peers", "worker_link", "worker_metrics", "wrong_acks"),
)
"""Files of tests over real servers that are asked: those about these modules."""
OTHERS = (
    *("*_mutants", "test_mutation", "test_avatar_*", "test_room_*", "test_bench_*", "test_evaluation*", "test_link_*"),
    *("test_placement_*", "test_model_*", "test_cli", "test_simulate_*", "test_speaking", "test_statements"),
)
"""Files of unit tests that are not asked: they are about other parts, or encode media in threads, which no fork has."""


def modules() -> Iterator[Path]:
    """Return the files that mutants are drawn from."""
    package = SOURCE / "dhsched"
    for found in sorted(package.rglob("*.py")):
        name = str(found.relative_to(package).with_suffix(""))
        if found.name != "__init__.py" and any(fnmatch(name, pattern) for pattern in MODULES):
            yield found


def sample(drawn: Iterable[str] = ()) -> list[PythonMutant]:
    """Return the mutants that are tried. Those that were `drawn` before stay, as long as there are such lines; in an
    order that the seed gives, others take the places that are left. So a change of a module changes little."""
    every = {each.name: each for path in modules() for each in mutants(dotted(path), path.read_text())}
    kept = [name for name in drawn if name in every]
    others = sorted(every.keys() - {*kept}, key=lambda name: digest_of(f"{SEED} {name}"))
    return [every[name] for name in [*kept, *others][:SAMPLE]]


def dotted(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts)


def test_files() -> list[Path]:
    """Return the files of tests that are asked."""
    tests = ROOT / "tests"
    unit = [path for path in sorted((tests / "unit").glob("test_*.py")) if not _other(path)]
    return [*unit, *(tests / "integration" / f"test_{name}.py" for name in INTEGRATION)]


def _other(path: Path) -> bool:
    return any(fnmatch(path.stem, pattern) for pattern in OTHERS)


def try_all(results: Results, say: Callable[[str], object], only: str = "") -> None:
    """Try each mutant of the sample that was not noticed before and whose module has `only` in its name."""
    drawn = sample(row.name for row in results.rows)
    waiting = [each for each in drawn if only in each.module and not results.noticed(each.name, digest_of(each.source))]
    waiting.sort(key=lambda each: results.tried(each.name))  # Survivors are the slowest, so they come last.
    files = test_files()

    def work(items: Mapping[str, pytest.Item]) -> None:
        reach, runner = Reach(), Runner(AT_ONCE)
        if missing := reach.missing(files):
            say(f"tracing {len(missing)} files of tests")
            trace(reach, missing, items, runner)
        for test in reach.failed():
            say(f"fails without a mutant, and is not asked: {test}")
        # First all mutants against unit tests, which are quick; then what is left against tests over real servers.
        left, known = try_some(waiting, True, reach, items, runner, noted), reasons()
        for mutant in left:
            if mutant.name in known:
                noted(mutant, "")  # Somebody has thought about it: tests over real servers would only cost time.
        try_some([each for each in left if each.name not in known], False, reach, items, runner, noted)

    def noted(mutant: PythonMutant, killer: str) -> None:
        path = mutant.module.replace(".", "/") + ".py"
        results.write(Row(mutant.name, path, mutant.line, mutant.rule, killer, digest_of(mutant.source)))
        say(f"{killer or 'survives'}: {mutant.name}")

    try:
        if waiting:
            collected(files, work)
    finally:
        results.tidy(each.name for each in drawn)


def try_some(
    mutants: list[PythonMutant],
    unit: bool,
    reach: Reach,
    items: Mapping[str, pytest.Item],
    runner: Runner,
    noted: Callable[[PythonMutant, str], None],
) -> list[PythonMutant]:
    """Try mutants against the unit tests that reach them, or against the other tests; return those that survive."""
    left: list[PythonMutant] = []
    for mutant in mutants:
        found = [(test, cost) for test, cost in reach.tests_of(mutant.module, mutant.line) if test in items]
        tests = [(items[test], cost) for test, cost in found if test.startswith(UNIT) == unit]

        def done(killer: str, mutant: PythonMutant = mutant) -> None:
            if killer or not unit:
                noted(mutant, killer)
            else:
                left.append(mutant)

        runner.run(Trial(mutant, tests).killer, done)
    runner.finish()
    return left


class Trial:
    """One mutant and the tests that it is tried against."""

    def __init__(self, mutant: PythonMutant, tests: list[tuple[pytest.Item, Cost]]) -> None:
        self._mutant = mutant
        self._tests = tests

    def killer(self, folder: Path) -> str:
        """Return the test that notices the mutant; empty if none does within the CPU time.

        A test over real servers, and one that takes too long, must fail twice: it may have failed because the machine
        is busy.
        """
        waiting, cpu_max_s = self._tests, CPU_MAX_S
        while waiting:
            ended = run_tests(waiting, folder, prepare=lambda: self._plant(folder), cpu_max_s=cpu_max_s)
            if ended.failed is None:
                break
            at = next((at for at, (item, _) in enumerate(waiting) if item.nodeid == ended.failed), None)
            assert at is not None, ended
            if (ended.said_so and ended.failed.startswith(UNIT)) or not self._passes(waiting[at], folder):
                return ended.failed
            cpu_max_s -= sum(cost.cpu_s for _, cost in waiting[: at + 1])
            waiting = waiting[at + 1 :]
        return ""

    def _passes(self, test: tuple[pytest.Item, Cost], folder: Path) -> bool:
        return run_tests([test], folder, prepare=lambda: self._plant(folder), cpu_max_s=CPU_MAX_S).failed is None

    def _plant(self, folder: Path) -> None:
        """Put the mutant into this process, and into those that it starts."""
        planted = {"module": self._mutant.module, "source": self._mutant.source}
        (folder / PLANT.name / "mutant.json").write_text(json.dumps(planted))
        loaded = sys.modules.get(self._mutant.module)
        if loaded is None:
            sys.meta_path.insert(0, Planted(self._mutant.module, self._mutant.source))
            return
        path = str(loaded.__file__)
        swap(Path(path).read_text(), self._mutant.source, path)
