"""The agent: runs the generations that its slot table gives it, and nothing else.

Pure rules (ownership/agent.py), which are part of the safety argument, decide what to do; this module does it. A
runtime counts from the moment its task exists until the task has ended, stopping runtimes included, so a
device never holds more than its capacity. A runtime that ends, for whatever reason, ends its generation in this boot:
the agent departs, and the live is placed anew. A runtime is stopped in three steps, each bounded: `inputs()` ends,
after `teardown_s` the task is cancelled, and as long as the task ignores that, it is cancelled again. The slot is given
back only when the task has ended. Each change costs the same however many lives run: nothing here reads all of them.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import structlog

from dhsched.links.messages import Report
from dhsched.ownership import agent as rules
from dhsched.types import BUSY_MAX, Generation, SlotState, slot_tag, split_tag
from dhsched.worker.inbox import LiveInfo, SessionInbox
from dhsched.worker.pull_client import Over
from dhsched.worker.reasons import CANCELLED, RETURNED, reason_of
from dhsched.worker.session import Port, Session

log = structlog.get_logger(__name__)

Runtime = Callable[[Session], Awaitable[None]]
Using = Callable[[Session], AbstractContextManager[object]]


class Pulls(Port, Protocol):
    """The connections that bring input: a PullClient, or a test's own."""

    def open(self, inbox: SessionInbox) -> asyncio.Future[LiveInfo]:
        """Ask for what the live is made of."""

    def leave(self, session: Session) -> None:
        """Give up the session's input: its runtime has ended."""


TEARDOWN_S = 10.0  # A runtime that has not stopped after this long is cancelled.
CANCEL_AGAIN_S = 5.0  # A runtime that is still there this long after a cancellation is cancelled again.
DEPART_AGAIN_S = 1.0  # A Depart that the slot table does not show after this long is sent again.


@dataclass(slots=True, eq=False)
class RunningSession:
    """A session and the task that runs it."""

    inbox: SessionInbox
    task: asyncio.Task[None] | None = None
    cancel_timer: asyncio.TimerHandle | None = None
    opening: bool = True

    @property
    def state(self) -> str:
        if self.cancel_timer is not None:
            return "stopping"
        if self.inbox.prepared:
            return "prepared"
        return "starting" if self.opening or not self.inbox.begun else "running"


class SessionAgent:
    """The runtimes of one boot. `worker` is the boot's WorkerID, empty until it is registered.

    `say_depart(live, number, reason)` sends a Depart to Dispatch; `say_prepared()` requests a report soon. Each session
    gets `shared`, and its runtime runs in the context that `using` makes for the session.
    """

    def __init__(
        self,
        runtime: Runtime,
        *,
        worker: str = "",
        capacity: int,
        pulls: Pulls,
        say_depart: Callable[[str, int, str], None],
        say_prepared: Callable[[], None] | None = None,
        teardown_s: float = TEARDOWN_S,
        shared: Any = None,
        using: Using = nullcontext,
    ) -> None:
        self.worker = worker
        self.rules = rules.AgentBook(capacity)
        self._runtime = runtime
        self._pulls = pulls
        self._say_depart = say_depart
        self._say_prepared = say_prepared
        self._teardown_s = teardown_s
        self._shared = shared
        self._using = using
        self._running: dict[str, RunningSession] = {}
        self._watched: set[str] = set()  # Those that start, wait for their commit, or have asked for time.
        self._departs: dict[str, float] = {}  # When each Depart was last sent.
        self._reasons: dict[str, str] = {}  # Why runtimes ended that nobody had stopped.
        self._reports = 0
        self._stopping_all = False
        self._empty = asyncio.Event()
        self._empty.set()
        self._due = False

    # -- what others notify the agent of

    def take_table(
        self, *, home: str, term: int, rev: int, table: Mapping[str, SlotState | None], base: int = 0
    ) -> None:
        self.rules.take_table(home=home, term=term, rev=rev, table=table, base=base)
        for tag in table if base else {*self._departs, *self._reasons}:
            self._forget_without_slot(tag)
        self.act_soon()

    def over(self, session: Session) -> None:
        """Stop a generation that the store has refused as stale, without waiting for the table to show the same."""
        self._stop(slot_tag(session.live, session.generation.epoch))

    def stop_all(self) -> None:
        """Stop every runtime of this boot, and start no others."""
        self._stopping_all = True
        for tag in [*self._running]:
            self._stop(tag)

    async def stopped(self) -> None:
        """Wait until no runtime is left."""
        await self._empty.wait()

    @property
    def runtimes(self) -> int:
        return len(self._running)

    @property
    def states(self) -> Counter[str]:
        """Return how many runtimes are starting, prepared, running or stopping."""
        return Counter(each.state for each in self._running.values())

    def report(self) -> Report:
        """Return the next report: the table's home, term and revision, the slots that need time (starting, or
        `extend`), and the reserved slots whose runtime waits only for the commit."""
        now = asyncio.get_running_loop().time()
        busy: list[str] = []
        prepared: list[str] = []
        watched, self._watched = self._watched, set()
        for tag in watched:
            if (each := self._running.get(tag)) is None:
                continue
            needs_time, is_prepared = each.opening or each.inbox.busy(now), each.inbox.prepared
            if needs_time:
                busy.append(tag)
            if is_prepared:
                prepared.append(tag)
            if needs_time or is_prepared:
                self._watched.add(tag)
        self._reports += 1
        if max(len(busy), len(prepared)) > BUSY_MAX:
            busy, prepared = part_of(busy, self._reports), part_of(prepared, self._reports)
        return Report(self.rules.term, self.rules.rev, busy, prepared, self.rules.home, partly=True)

    # -- what it does

    def act_soon(self) -> None:
        """Compare table and runtimes once at the end of this tick, however often this is called in it."""
        if not self._due:
            self._due = True
            asyncio.get_running_loop().call_soon(self._act)

    def _act(self) -> None:
        self._due = False
        if self._stopping_all:
            return
        for action in self.rules.actions():
            match action:
                case rules.Stop(tag):
                    self._stop(tag)
                case rules.Depart(tag):
                    self._depart(tag)
                case rules.Start(tag) | rules.Prepare(tag):
                    self._begin(action, tag)

    def _begin(self, action: rules.Start | rules.Prepare, tag: str) -> None:
        self.rules.begun(action)
        if (running := self._running.get(tag)) is None:
            live, number = split_tag(tag)
            session = Session(
                live,
                Generation(self.worker, number),
                self._pulls,
                may_claim=isinstance(action, rules.Start),
                on_prepared=self._say_prepared,
                on_extend=partial(self._watch, tag),
            )
            session.shared = self._shared
            self._watched.add(tag)
            running = self._running[tag] = RunningSession(SessionInbox(session))
            self._empty.clear()
            running.task = asyncio.create_task(self._run(tag, running), name=tag)
        elif isinstance(action, rules.Start):
            running.inbox.allow_claim()

    def _watch(self, tag: str) -> None:
        self._watched.add(tag)

    def _stop(self, tag: str) -> None:
        if (running := self._running.get(tag)) is None or running.cancel_timer is not None:
            return
        self.rules.stopping(tag)
        running.inbox.close()
        loop = asyncio.get_running_loop()
        # A session that has not entered its runtime yet has nothing to tear down.
        running.cancel_timer = loop.call_later(0 if running.opening else self._teardown_s, self._cancel, tag)

    def _cancel(self, tag: str) -> None:
        if (running := self._running.get(tag)) is None or running.task is None:
            return
        if not running.opening:
            log.warning("runtime does not stop by itself, cancelling it", slot=tag)
        running.task.cancel()
        # A runtime that ignores its cancellation keeps its slot: its memory is still in use.
        running.cancel_timer = asyncio.get_running_loop().call_later(CANCEL_AGAIN_S, self._cancel, tag)

    def _depart(self, tag: str) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._departs.get(tag, float("-inf")) < DEPART_AGAIN_S:
            return
        self._departs[tag] = now
        # After its Depart a slot is never started again, even by a table that is already here.
        self.rules.departed(tag)
        self._say_depart(*split_tag(tag), self._reasons.get(tag, ""))

    def _forget_without_slot(self, tag: str) -> None:
        """Forget when the Depart was sent, and why the runtime ended, unless the table still has the slot."""
        if tag not in self.rules.table:
            self._departs.pop(tag, None)
            self._reasons.pop(tag, None)

    async def _run(self, tag: str, running: RunningSession) -> None:
        """Run one runtime from its start to its end, and handle whatever it raises."""
        inbox, session = running.inbox, running.inbox.session
        structlog.contextvars.bind_contextvars(live=session.live, epoch=session.generation.epoch)
        inbox.keep_logs()
        try:
            inbox.made_of(await self._pulls.open(inbox))
            running.opening = False
            with self._using(session):
                await self._runtime(session)
            if not session.stopping.is_set():
                log.warning("runtime returned although its live goes on; the live is placed anew", slot=tag)
                self._reasons[tag] = RETURNED
        except Over:
            pass
        except asyncio.CancelledError:
            if running.cancel_timer is None:
                self._reasons[tag] = CANCELLED
                raise
        except Exception as error:
            log.exception("runtime crashed; its live is placed anew, the others go on", slot=tag)
            if not session.stopping.is_set():
                self._reasons[tag] = reason_of(error)
        finally:
            self._ended(tag, running)

    def _ended(self, tag: str, running: RunningSession) -> None:
        if running.cancel_timer is not None:
            running.cancel_timer.cancel()
        self._pulls.leave(running.inbox.session)
        self._running.pop(tag, None)
        self.rules.over(tag)
        self._forget_without_slot(tag)
        if not self._running:
            self._empty.set()
        self.act_soon()


def part_of(tags: list[str], report: int) -> list[str]:
    """Return at most BUSY_MAX of the slots: as many as one report carries. Successive reports rotate through them."""
    if len(tags) <= BUSY_MAX:
        return tags
    first = report * BUSY_MAX % len(tags)
    return (tags[first:] + tags[:first])[:BUSY_MAX]
