"""Start processes by forking one that has imported everything: each runs after milliseconds, without an interpreter's
start.

The forking process calls `serve(run)`; this process starts it, and asks it for forks, with `Zygote`. A command is one
JSON line on its standard input: {"key", "arguments", "log", "environment"}. It prints `ready`, {"key", "pid"} for each
command, and {"ended", "status"} when a fork is gone. Forks die with it, also those that are stopped (PR_SET_PDEATHSIG:
it has one thread, so this is sound), and it goes when its standard input ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import itertools
import json
import os
import select
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from dhsched.local.process import START_S, Process
from dhsched.pauses import freeze

PR_SET_PDEATHSIG = 1
Run = Callable[[Sequence[str]], None]


class Zygote:
    """The forking process, for the one that starts it. `on_end` is called with the pid and status of each fork."""

    def __init__(self, process: Process, on_end: Callable[[int, int], None]) -> None:
        self.process = process
        self._on_end = on_end
        self._keys = itertools.count()
        self._started: dict[int, asyncio.Future[int]] = {}

    @classmethod
    async def start(
        cls,
        module: str,
        *arguments: str,
        on_end: Callable[[int, int], None] = lambda _pid, _status: None,
        kind: type[Process] = Process,
    ) -> Zygote:
        """Run a module that calls `serve`, and wait until it is ready."""
        made: list[Zygote] = []
        process = await kind.spawn(
            f"python -m {module}", sys.executable, "-m", module, *arguments, hear=lambda line: made[0]._hear(line)
        )
        made.append(cls(process, on_end))
        await process.until_ready()
        return made[0]

    async def fork(self, arguments: Sequence[str], *, log: Path, environment: Mapping[str, str] | None = None) -> int:
        """Fork a process that runs with these arguments, its output in `log`; return its pid."""
        key = next(self._keys)
        started = self._started[key] = asyncio.get_running_loop().create_future()
        asked = {"key": key, "arguments": [*arguments], "log": str(log), "environment": dict(environment or {})}
        self.process.write(json.dumps(asked).encode())
        async with asyncio.timeout(START_S):
            pid: int = await started
        return pid

    def _hear(self, line: bytes) -> None:
        said = json.loads(line)
        if "pid" in said:
            self._started.pop(said["key"]).set_result(said["pid"])
        else:
            self._on_end(said["ended"], said["status"])


def serve(run: Run) -> None:
    """Fork a process for each command; it calls `run` with the command's arguments and ends. Return at the end of
    standard input."""
    freeze()
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(woken, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake)
    os.write(1, b"ready\n")
    waiting = b""
    while True:
        readable, _, _ = select.select([0, woken], [], [], 1.0)
        with contextlib.suppress(BlockingIOError):
            os.read(woken, 4096)
        _reap()
        if 0 in readable:
            if not (data := os.read(0, 65_536)):
                return
            *lines, waiting = (waiting + data).split(b"\n")
            for line in lines:
                asked = json.loads(line)
                _say({"key": asked["key"], "pid": _fork(asked, run)})


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            _say({"ended": pid, "status": os.waitstatus_to_exitcode(status)})


def _say(line: dict[str, Any]) -> None:
    os.write(1, json.dumps(line).encode() + b"\n")


def _fork(asked: dict[str, Any], run: Run) -> int:
    parent = os.getpid()
    if not (pid := os.fork()):
        _run(asked, run, parent)
    return pid


def _run(asked: dict[str, Any], run: Run, parent: int) -> NoReturn:
    """Run the command in this fork: in a session of its own, with its log, until it ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    os.setsid()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    log = os.open(asked["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ.update(asked["environment"])
    code = 1
    try:
        run(asked["arguments"])
        code = 0
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else 1
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(code)
