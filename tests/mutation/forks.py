"""Tests in forks of one process that has imported them all: a mutant costs what its tests cost, and no start of pytest.

`collected` collects tests and calls a function instead of running them. That function gives `Runner` one job after the
other. Each job has a process of its own (the *warden*), which forks another one for the tests, and ends whatever these
have left when they are over: servers, roles, runtimes.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import resource
import shutil
import signal
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

import pytest

PLANT = Path(__file__).parent / "plant"
"""What interpreters load that the tests start: it is copied into each fork's folder."""
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
TEST_MORE_S, TEST_TIMES = 10.0, 5.0
"""A test may take this long, and so many times as long as it took without a mutant: CPU time and time. One that takes
longer hangs, and has noticed."""
POLL_S = 0.02


class Cost(NamedTuple):
    """What a test took without a mutant."""

    cpu_s: float
    wall_s: float

    @property
    def most(self) -> Cost:
        return Cost(*(TEST_MORE_S + TEST_TIMES * each for each in self))


Work = Callable[[Mapping[str, pytest.Item]], None]


class InsteadOfTests:
    """A plugin: what was collected is handed to `work`, and pytest runs nothing itself."""

    def __init__(self, work: Work) -> None:
        self._work = work

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            raise session.Interrupted("tests cannot be collected")
        self._work({item.nodeid: item for item in session.items})
        return True


def collected(files: Iterable[Path], work: Work) -> None:
    """Collect the tests of these files and call `work` with them, by their ids."""
    options = ["-q", "-s", "-p", "no:cacheprovider", "--no-header"]
    code = pytest.main([*options, *map(str, files)], plugins=[InsteadOfTests(work)])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        raise SystemExit(f"pytest ended with {code}")


class Runner:
    """Runs jobs, each in a warden of its own, some at once. A job returns text, which `done` is called with."""

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._running: dict[int, tuple[Path, Callable[[str], None]]] = {}

    def run(self, job: Callable[[Path], str], done: Callable[[str], None]) -> None:
        """Start the job as soon as fewer than `at_once` run. It gets a folder, which is gone after it."""
        while len(self._running) >= self._at_once:
            self._reap()
        folder = Path(tempfile.mkdtemp(prefix="dhm-", dir="/tmp"))
        pid = os.fork()
        if not pid:
            _guarded(lambda: (folder / "answer").write_text(job(folder)))
        self._running[pid] = folder, done

    def finish(self) -> None:
        """Wait for all jobs."""
        while self._running:
            self._reap()

    def _reap(self) -> None:
        pid, status = os.wait()
        if pid not in self._running:
            return
        folder, done = self._running.pop(pid)
        answer = folder / "answer"
        text = answer.read_text() if answer.exists() else None
        shutil.rmtree(folder, ignore_errors=True)
        if text is None:
            raise SystemExit(f"a job ended with status {status} and no answer")
        done(text)


def _guarded(job: Callable[[], object]) -> NoReturn:
    """Run the job in this fork, end what it has left, and end the fork."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    _end_with_parent()
    code = 1
    try:
        job()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        _end_children()
        os._exit(code)


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _end_children() -> None:
    """End every child; what they leave becomes a child of this process, and ends too."""
    with contextlib.suppress(ChildProcessError):
        while True:
            for child in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
                os.kill(int(child), signal.SIGKILL)
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(POLL_S)


class Ended(NamedTuple):
    """How tests ended: the first that failed, if one did; and whether it said so, or its process has died in it."""

    failed: str | None
    said_so: bool = True


def run_tests(
    tests: Sequence[tuple[pytest.Item, Cost]],
    folder: Path,
    *,
    prepare: Callable[[], None],
    cpu_max_s: float,
) -> Ended:
    """Run the tests in a fork, after `prepare` there, until one fails or has no CPU time left."""
    said = folder / "said"
    said.write_text("")
    pid = os.fork()
    if not pid:
        try:
            _end_with_parent()
            _alone(folder)
            prepare()
            _run(tests, said, cpu_max_s)
        finally:
            os._exit(1)
    limit_s = sum(cost.most.wall_s for _, cost in tests)
    ends_at = time.monotonic() + limit_s
    while os.waitpid(pid, os.WNOHANG)[0] == 0:
        if time.monotonic() > ends_at:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            break
        time.sleep(POLL_S)
    _end_children()
    lines = said.read_text().splitlines()
    if not lines:
        raise RuntimeError("a fork ended before its first test")
    match lines[-1].partition(" "):
        case ("ended", _, _):
            return Ended(None)
        case (how, _, test):
            return Ended(test, said_so=how == "failed")


def _alone(folder: Path) -> None:
    """Share no output, no temporary files, no keys and no random numbers with other forks."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    tempfile.tempdir = os.environ["TMPDIR"] = os.environ["PYTEST_DEBUG_TEMPROOT"] = str(folder)
    os.environ["XDG_STATE_HOME"] = os.environ["XDG_CONFIG_HOME"] = str(folder)
    shutil.copytree(PLANT, folder / PLANT.name, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(folder / PLANT.name), os.environ.get("PYTHONPATH", "")])
    random.seed()


def _run(tests: Sequence[tuple[pytest.Item, Cost]], said: Path, cpu_max_s: float) -> None:
    with said.open("a", buffering=1) as out:
        session = tests[0][0].session
        for at, (item, cost) in enumerate(tests):
            if cpu_s() > cpu_max_s:
                out.write("ended\n")
                os._exit(0)
            resource.setrlimit(resource.RLIMIT_CPU, (int(own_cpu_s() + cost.most.cpu_s) + 1, resource.RLIM_INFINITY))
            item.add_marker(pytest.mark.timeout(cost.most.wall_s, method="thread"), append=False)
            out.write(f"runs {item.nodeid}\n")
            following = tests[at + 1][0] if at + 1 < len(tests) else None
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if session.testsfailed:
                out.write(f"failed {item.nodeid}\n")
                os._exit(1)
        out.write("ended\n")
        os._exit(0)


def own_cpu_s() -> float:
    times = os.times()
    return times.user + times.system


def cpu_s() -> float:
    """Return the CPU time of this process and of those that have ended under it."""
    times = os.times()
    return own_cpu_s() + times.children_user + times.children_system
