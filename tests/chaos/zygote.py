"""The process that makes the others: it imports everything once and forks a role whenever it is told to.

    python -m tests.chaos.zygote MUTANT [room]        (MUTANT is "" for none; `room` if there is to be one)

So a killed process is back in milliseconds, as in a deployment with spare cores. A command is one JSON line on standard
input: {"key", "arguments", "log", "environment"}. It prints `ready`, {"key", "pid"} for each command, and {"ended",
"status"} when a role is gone. Its children die with it, also those that are stopped (PR_SET_PDEATHSIG: it has one
thread, so this is sound), and it goes when its standard input ends.

What a chaos run changes in the product is changed here, before the product is imported, and nowhere else: short limits
(limits.py), scripts that record themselves (trace.py), one mutant of them (tests/conformance/lua_mutants) or of a
service (hostile_mutants.py), and a wall clock for Workers that the driver can set.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from typing import Any, NoReturn

from dhsched.ownership import limits
from dhsched.store.steps import scripts
from tests.chaos.hostile_mutants import UNCHECKED
from tests.chaos.limits import CHAOS_LIMITS
from tests.chaos.trace import traced_scripts
from tests.conformance.mutants import LOOK_OFF, MUTANTS

CLOCK = "DHSCHED_CHAOS_CLOCK"
"""A file with the seconds that a Worker's wall clock is off by."""
PR_SET_PDEATHSIG = 1
ROLES = (
    *("uvloop", "dhsched.cli.run", "dhsched.dispatch.app", "dhsched.infer.app", "dhsched.worker.main"),
    "tests.chaos.runtime",
)
"""What the roles need: imported once, before the first fork."""


WITH_ROOM = ("dhsched.room.app", "tests.chaos.picture")


def prepare(mutant: str, *, room: bool = False) -> None:
    """Put the limits and scripts of this run in the place of the product's, then import it."""
    assert "dhsched.store.steps.redis" not in sys.modules, "the product has taken its own scripts and limits already"
    replacements = {}
    if mutant and mutant not in UNCHECKED:
        [wrong] = [each for each in (*MUTANTS, LOOK_OFF) if each.name == mutant]
        replacements = wrong.replacements()
    loaded = traced_scripts(replacements)
    limits.DEFAULT_LIMITS = CHAOS_LIMITS
    scripts.default_scripts = lambda: loaded  # type: ignore[assignment]
    if mutant in UNCHECKED:
        UNCHECKED[mutant].plant()
    for module in (*ROLES, *(WITH_ROOM if room else ())):
        importlib.import_module(module)
    gc.collect()
    gc.freeze()


def serve() -> None:
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(woken, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake)
    waiting = b""
    while True:
        readable, _, _ = select.select([0, woken], [], [], 1.0)
        with contextlib.suppress(BlockingIOError):
            os.read(woken, 4096)
        reap()
        if 0 in readable:
            data = os.read(0, 65_536)
            if not data:
                return
            *lines, waiting = (waiting + data).split(b"\n")
            for line in lines:
                asked = json.loads(line)
                say({"key": asked["key"], "pid": fork(asked)})


def reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            say({"ended": pid, "status": os.waitstatus_to_exitcode(status)})


def say(line: dict[str, Any]) -> None:
    os.write(1, json.dumps(line).encode() + b"\n")


def fork(asked: dict[str, Any]) -> int:
    parent = os.getpid()
    pid = os.fork()
    if not pid:
        run(asked, parent)
    return pid


def run(asked: dict[str, Any], parent: int) -> NoReturn:
    """The child: a role in a session of its own, with its log, until it ends."""
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
        if CLOCK in os.environ:
            time.time = off_by(os.environ[CLOCK], time.time)
        sys.argv = ["dhsched", *asked["arguments"]]
        from dhsched.cli import main

        main()
        code = 0
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else 1
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(code)


def off_by(path: str, clock: Callable[[], float]) -> Callable[[], float]:
    """A wall clock that is off by what the file says at the moment."""
    file = os.open(path, os.O_RDONLY)
    return lambda: clock() + float(os.pread(file, 32, 0) or b"0")


if __name__ == "__main__":
    prepare(sys.argv[1], room="room" in sys.argv[2:])
    os.write(1, b"ready\n")
    serve()
