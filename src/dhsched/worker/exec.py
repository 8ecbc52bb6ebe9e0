r"""`--exec CMD`: a runtime in any language. One child process per live, JSON lines on its standard input and output.

To the child: {"open": {"live", "worker", "epoch", "digital_id", "room", "metadata", "config", "state"}}, then
{"input": {"seq", "kind", "text", "boundary", "config"?}}, {"resume": {"config", "state"}} before the first input if
another generation went on after the child was prepared, {"interrupt": {"seq"}} as soon as an interrupt arrives (its
input follows in order), {"close": {}} when the child must exit. From the child: {"ack": 7} for everything up to item 7,
or {"ack": 7, "state": ...} to save its state too, any JSON value; {"extend": 30} to ask for time. Other lines are
logged. The child's standard error goes to the Worker's; if the child fails, the end of that is the reported reason.

The child leads a process group. When its session ends, or the child ends, the whole group is killed. The child dies
with the agent even when the agent is killed: on Linux the kernel kills the child, and everywhere the keeper (keeper.py)
kills the group. The child inherits the device lock, so the device is taken while any process of the group lives.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import structlog

from dhsched.errors import BadSetting, ChildFailed
from dhsched.worker.child_env import child_environment
from dhsched.worker.reasons import ending_of
from dhsched.worker.runtimes import Runtime
from dhsched.worker.session import UNREADABLE, Item, Session

log = structlog.get_logger(__name__)

LINE_BYTES_MAX = 256 * 1024  # A child that prints a longer line fails.
CLOSE_S = 5.0  # A child that has not exited this long after `close` is killed.
LAST_WORDS_S = 1.0  # Output of an ended child that cannot be read in this time is lost.
WORDS_BYTES_KEPT = 4_096  # Older standard error than this is not kept for the reason.
STDERR = 2
KEEPER = Path(__file__).with_name("keeper.py")
KEEPER_S = 5.0  # A keeper that has not ended this long after its pipe was closed is left alone.
PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class Exec:
    """A command as a runtime; see the module."""

    command: str


class Keeper:
    """The Worker's end of the keeper process, which kills the group of every child once the Worker is gone."""

    def __init__(self) -> None:
        reading, self._pipe = os.pipe()
        try:
            command = [sys.executable, "-I", "-S", str(KEEPER)]
            self._process = subprocess.Popen(command, stdin=reading, stdout=subprocess.DEVNULL, start_new_session=True)
        except BaseException:
            os.close(self._pipe)
            raise
        finally:
            os.close(reading)

    def note_self(self) -> None:
        """Send the child's own process id, after the fork. If the keeper is gone, the child goes on without it."""
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        self._say(f"+{os.getpid()}\n")
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)

    def forget(self, group: int) -> None:
        self._say(f"-{group}\n")

    def _say(self, line: str) -> None:
        with contextlib.suppress(BrokenPipeError):
            os.write(self._pipe, line.encode())

    def close(self) -> None:
        os.close(self._pipe)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(KEEPER_S)


@contextmanager
def exec_runtime(command: str, lock_fd: int = -1, named: str = "") -> Iterator[Runtime]:
    """Yield a runtime that runs `command` for each live. When the block is left, no child is left either.

    `named` lists variables that the children get beside the usual ones (child_env.py).
    """
    words = shlex.split(command)
    if not words:
        raise BadSetting("--exec is empty; give the command that runs one live")
    keeper = Keeper()
    tie = _tied(keeper)

    async def run(session: Session) -> None:
        try:
            child = await asyncio.create_subprocess_exec(
                *words,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                limit=LINE_BYTES_MAX,
                env=child_environment(os.environ, named),
                pass_fds=() if lock_fd < 0 else (lock_fd,),
                preexec_fn=tie,
                start_new_session=True,
            )
        except OSError as error:
            raise ChildFailed(f"cannot run {words[0]} ({error.strerror}): give --exec a command on PATH") from error
        try:
            await ChildSession(session, child, words).run()
        finally:
            keeper.forget(child.pid)

    try:
        yield run
    finally:
        keeper.close()


def _tied(keeper: Keeper) -> Callable[[], None]:
    """Return what a child calls before it execs: it registers with the keeper, and on Linux with the kernel."""
    prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None
    parent = os.getpid()

    def tie() -> None:
        keeper.note_self()
        if prctl is not None:
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:  # The Worker died before the child was tied to it.
                os._exit(1)

    return tie


def shown_state(state: Any) -> Any:
    """Return the state as a child gets it: JSON has no bytes, and a child's text is stored as bytes."""
    return state.decode(errors="replace") if isinstance(state, bytes) else state


class ChildSession:
    """One live and its child process."""

    def __init__(self, session: Session, child: asyncio.subprocess.Process, words: Sequence[str]) -> None:
        self._session = session
        self._child = child
        self._command = words[0]
        self._words = b""  # The end of the child's standard error.
        self._handed = 0  # The last item that was sent to the child.
        self._out: dict[int, Item] = {}  # Handed to the child and not acked by it; no more than the pull's credit.

    async def run(self) -> None:
        session = self._session
        self._tell("open", self._opening())
        session.on_interrupt = self._interrupted
        reading = asyncio.create_task(self._read())
        relaying = asyncio.create_task(self._relay())
        feeding = asyncio.create_task(self._feed())
        # The child's end is not the end of its output: a process that the child started may hold the pipe open.
        ending = asyncio.create_task(self._child.wait())
        try:
            await asyncio.wait((reading, feeding, ending), return_when=asyncio.FIRST_COMPLETED)
        finally:
            session.on_interrupt = None
            await self._end(reading, relaying, feeding)
            ending.cancel()
        for task in (feeding, reading):
            if not task.cancelled():
                task.result()
        if not session.stopping.is_set():
            raise ChildFailed(ending_of(self._command, self._child.returncode, self._words))

    def _opening(self) -> dict[str, Any]:
        session = self._session
        return {
            "live": session.live,
            "worker": session.generation.worker,
            "epoch": session.generation.epoch,
            "digital_id": session.digital_id,
            "room": session.room,
            "metadata": session.metadata,
            "config": session.config,
            "state": shown_state(session.state),
        }

    async def _feed(self) -> None:
        """Send input to the child, as fast as the child reads."""
        assert self._child.stdin is not None
        session, first = self._session, True
        config, state = session.config, session.state  # As the child got them in `open`.
        async for item in session.inputs(auto_ack=False):
            if first and (session.state != state or (item.config is None and session.config != config)):
                now = self._opening()
                self._tell("resume", {"config": now["config"], "state": now["state"]})
            first = False
            if item.kind == "interrupt":
                self._out.clear()
            self._out[item.seq] = item
            self._handed = item.seq
            fields: dict[str, Any] = {"seq": item.seq, "kind": item.kind, "text": item.text, "boundary": item.boundary}
            if item.config is not None:
                fields["config"] = item.config
            self._tell("input", fields)
            await self._child.stdin.drain()

    def _interrupted(self) -> None:
        """Send the interrupt at once; the child may ack it before it arrives as input."""
        self._handed = self._session.accepted[0]
        self._tell("interrupt", {"seq": self._handed})

    async def _read(self) -> None:
        """Act on the child's lines until it closes its output."""
        assert self._child.stdout is not None
        while line := await self._child.stdout.readline():
            try:
                said = msgspec.json.decode(line, type=dict[str, Any])
            except UNREADABLE:
                log.info("output of a child", live=self._session.live, line=line.decode(errors="replace").rstrip())
                continue
            self._hear(said)

    async def _relay(self) -> None:
        """Copy the child's standard error to ours, and keep its end as the reason if the child fails."""
        assert self._child.stderr is not None
        while words := await self._child.stderr.read(LINE_BYTES_MAX):
            self._words = (self._words + words)[-WORDS_BYTES_KEPT:]
            with contextlib.suppress(OSError):
                os.write(STDERR, words)

    def _hear(self, said: dict[str, Any]) -> None:
        seconds, upto, state = said.get("extend"), said.get("ack"), said.get("state")
        if isinstance(seconds, int | float):
            self._session.extend(seconds)
        if "state" in said:
            # A text is stored as plain bytes, which need no mark.
            self._session.state = state.encode() if isinstance(state, str) and state else state
        if upto is not None:
            self._check_ack(upto)
            for seq in [seq for seq in self._out if seq <= upto]:
                self._session.ack(self._out.pop(seq))

    def _check_ack(self, upto: object) -> None:
        """Fail a child that acks an item it never got: it is wrong about what it consumed. Its live is placed anew."""
        who = f"{self._command} of {self._session.live}"
        if not isinstance(upto, int) or isinstance(upto, bool):
            raise ChildFailed(f"{who} acked {upto!r}; send the number of an item")
        if upto > self._handed:
            raise ChildFailed(f"{who} acked item {upto}, but was handed items up to {self._handed}")

    def _tell(self, what: str, fields: dict[str, Any]) -> None:
        assert self._child.stdin is not None
        if not self._child.stdin.is_closing():
            self._child.stdin.write(msgspec.json.encode({what: fields}) + b"\n")

    async def _end(
        self, reading: asyncio.Task[None], relaying: asyncio.Task[None], feeding: asyncio.Task[None]
    ) -> None:
        """Send `close`, then kill the child and all it started. Acks on the way out still count."""
        feeding.cancel()
        self._tell("close", {})
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            assert self._child.stdin is not None
            self._child.stdin.close()
        try:
            async with asyncio.timeout(CLOSE_S):
                await self._child.wait()
        except (TimeoutError, asyncio.CancelledError):
            pass
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._child.pid, signal.SIGKILL)
            await self._child.wait()
            # Every process of the group is dead, so the pipes reach their end.
            await asyncio.wait((reading, relaying), timeout=LAST_WORDS_S)
            reading.cancel(), relaying.cancel()
            await asyncio.gather(reading, relaying, feeding, return_exceptions=True)
