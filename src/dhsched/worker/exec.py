r"""`--exec CMD`: a runtime in any language. One child process per live, JSON lines on its standard input and output.

To the child: {"open": {"live", "worker", "epoch", "digital_id", "room", "device", "metadata", "config", "state"}}, then
{"input": {"seq", "kind", "text", "boundary", "config"?}}, {"resume": {"config", "state"}} before the first input if
another generation went on after the child was prepared, {"interrupt": {"seq"}} as soon as an interrupt arrives (its
input follows in order), {"close": {}} when the child must exit. From the child: {"ack": 7} for everything up to item 7,
or {"ack": 7, "state": ...} to save its state too, any JSON value; {"extend": 30} to ask for time; {"late": 0.2} if so
many seconds of output came late; {"emit": {"name": "...", "data": {...}}} for a message to the application. {"journal":
{}} asks for the live's journal, which comes as {"journal": {"entries": [...]}} once the live is claimed; from then on
{"append": [...]} and {"replace": [...]}, in a line with an ack or before one, are stored with that ack. Other lines are
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
from typing import Any, ClassVar

import msgspec
import structlog

from dhsched.errors import BadId, BadSetting, BadValue, ChildFailed, TooManyEmits
from dhsched.web.logs import not_kept
from dhsched.worker.child_env import child_environment
from dhsched.worker.inbox import SessionInbox
from dhsched.worker.journal import Journal
from dhsched.worker.log_lines import Splitter
from dhsched.worker.reasons import ending_of
from dhsched.worker.runtimes import Runtime
from dhsched.worker.session import Item, Session
from dhsched.worker.values import UNREADABLE

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


class EmitLine(msgspec.Struct, forbid_unknown_fields=True):
    """A child's message to the application."""

    name: str
    data: dict[str, Any] = {}


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
def exec_runtime(command: str, lock_fds: Sequence[int] = (), named: str = "") -> Iterator[Runtime]:
    """Yield a runtime that runs `command` for each live. When the block is left, no child is left either.

    `lock_fds` are the device locks, which the children inherit. `named` lists variables that the children get beside
    the usual ones (child_env.py).
    """
    if not (words := shlex.split(command)):
        raise BadSetting("--exec is empty; give the command that runs one live")
    with child_runtime(words, lock_fds, named) as runtime:
        yield runtime


@contextmanager
def child_runtime(
    words: Sequence[str],
    lock_fds: Sequence[int] = (),
    named: str = "",
    *,
    kind: type[ChildSession] | None = None,
    close_s: float = CLOSE_S,
) -> Iterator[Runtime]:
    """Yield a runtime as `exec_runtime` does. `kind` talks to a child; a child that must close has `close_s`."""
    keeper = Keeper()
    tie = _tied(keeper)
    talks = kind or ChildSession

    async def run(session: Session) -> None:
        try:
            child = await asyncio.create_subprocess_exec(
                *words,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                limit=talks.line_bytes_max,
                env=child_environment(os.environ, named),
                pass_fds=lock_fds,
                preexec_fn=tie,
                start_new_session=True,
            )
        except OSError as error:
            raise ChildFailed(f"cannot run {words[0]} ({error.strerror}): give --exec a command on PATH") from error
        try:
            await talks(session, child, words, close_s).run()
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

    line_bytes_max: ClassVar[int] = LINE_BYTES_MAX

    def __init__(
        self, session: Session, child: asyncio.subprocess.Process, words: Sequence[str], close_s: float = CLOSE_S
    ) -> None:
        self._close_s = close_s
        self._session = session
        self._inbox = SessionInbox(session)
        self._child = child
        self._command = words[0]
        self._words = b""  # The end of the child's standard error.
        self._handed = 0  # The last item that was sent to the child.
        self._journal: Journal | None = None  # Once the child has asked for it.
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
            raise self._failure()

    def _failure(self) -> ChildFailed:
        return ChildFailed(ending_of(self._command, self._child.returncode, self._words))

    def _opening(self) -> dict[str, Any]:
        session = self._session
        return {
            "live": session.live,
            "worker": session.generation.worker,
            "epoch": session.generation.epoch,
            "digital_id": session.digital_id,
            "room": session.room,
            "device": session.device,
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
            self._hand(item)
            await self._child.stdin.drain()

    def _hand(self, item: Item) -> None:
        if item.kind == "interrupt":
            self._out.clear()
        self._out[item.seq] = item
        self._handed = item.seq
        fields: dict[str, Any] = {"seq": item.seq, "kind": item.kind, "text": item.text, "boundary": item.boundary}
        if item.config is not None:
            fields["config"] = item.config
        if item.traceparent:
            fields["traceparent"] = item.traceparent
        self._tell("input", fields)

    def _interrupted(self) -> None:
        """Send the interrupt at once; the child may ack it before it arrives as input."""
        self._handed = self._inbox.accepted[0]
        self._tell("interrupt", {"seq": self._handed})

    async def _read(self) -> None:
        """Act on the child's lines until it closes its output."""
        assert self._child.stdout is not None
        while line := await self._child.stdout.readline():
            try:
                said = msgspec.json.decode(line, type=dict[str, Any])
            except UNREADABLE:
                self._inbox.keep_line("stdout", line)
                with not_kept():
                    log.info("output of a child", live=self._session.live, line=line.decode(errors="replace").rstrip())
                continue
            self._hear(said)
            if "emit" in said:
                await self._emit(said["emit"])
            if "journal" in said:
                await self._read_journal()

    async def _emit(self, said: object) -> None:
        """Send the child's message. While too many wait to be stored, the child's output is not read."""
        try:
            emit = msgspec.convert(said, EmitLine)
            while True:
                try:
                    return self._session.emit(emit.name, emit.data)
                except TooManyEmits:
                    await self._session.emits_stored()
        except (msgspec.ValidationError, BadId, BadValue) as error:
            raise ChildFailed(f"{self._command} of {self._session.live} emitted what cannot be sent: {error}") from None

    async def _read_journal(self) -> None:
        """Send the live's journal to the child, once the live is claimed. Until then the child's output is not read."""
        journal = await self._session.journal()
        if not self._session.stopping.is_set():
            self._journal = journal
            self._tell("journal", self._journal_fields(journal))

    def _journal_fields(self, journal: Journal) -> dict[str, Any]:
        return {"entries": [shown_state(value) for value in journal.values()]}

    def _write_journal(self, said: dict[str, Any]) -> None:
        """Write what the child says to its journal; the next ack stores it."""
        if "append" not in said and "replace" not in said:
            return
        who, replaced, added = f"{self._command} of {self._session.live}", said.get("replace"), said.get("append", [])
        if self._journal is None:
            raise ChildFailed(f'{who} wrote to its journal before it had read it; send {{"journal": {{}}}} first')
        if not isinstance(added, list) or not isinstance(replaced, list | None):
            raise ChildFailed(f"{who} wrote no list to its journal; append and replace have lists of entries")
        try:
            if replaced is not None:
                self._journal.replace(replaced)
            for value in added:
                self._journal.append(value)
        except BadValue as error:
            raise ChildFailed(f"{who} wrote what its journal cannot take: {error}") from None

    async def _relay(self) -> None:
        """Copy the child's standard error to ours and to the live's log, and keep its end, which is the reason if the
        child fails."""
        assert self._child.stderr is not None
        lines = Splitter()
        while words := await self._child.stderr.read(LINE_BYTES_MAX):
            self._words = (self._words + words)[-WORDS_BYTES_KEPT:]
            with contextlib.suppress(OSError):
                os.write(STDERR, words)
            for line in lines.feed(words):
                self._inbox.keep_line("stderr", line)
        self._inbox.keep_line("stderr", lines.end())

    def _hear(self, said: dict[str, Any]) -> None:
        seconds, late, upto = said.get("extend"), said.get("late"), said.get("ack")
        if isinstance(seconds, int | float):
            self._session.extend(seconds)
        if isinstance(late, int | float):
            self._session.late(late)
        if "state" in said:
            self._save(said["state"])
        self._write_journal(said)
        if upto is not None:
            self._check_ack(upto)
            if upto == 0:
                self._session.save_journal()
            # The last one first: all go in one ack, with the state and the journal that are about all of them.
            for seq in sorted((seq for seq in self._out if seq <= upto), reverse=True):
                self._session.ack(self._out.pop(seq))

    def _save(self, state: Any) -> None:
        """Save the child's state with the next ack. A text is stored as plain bytes, which need no mark."""
        self._session.state = state.encode() if isinstance(state, str) and state else state

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
            async with asyncio.timeout(self._close_s):
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
