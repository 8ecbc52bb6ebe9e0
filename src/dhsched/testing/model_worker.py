"""A Worker on the protocol's model: the real agent and real sessions, with the model in the place of the services.

What Dispatch and the Infer-Controller do over the network happens here by function calls: a report is the step
`report`, a claim the step `pull`, items come by `release_input`, acks go by `ack_input`. Which of them are refused is
decided by the steps (ownership/steps), as in the store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from dhsched.links.messages import Source
from dhsched.ownership import items
from dhsched.ownership import outcomes as o
from dhsched.ownership.journal import Change
from dhsched.ownership.limits import DEFAULT_LIMITS
from dhsched.ownership.state import EMPTY, State
from dhsched.ownership.steps import take
from dhsched.types import Generation, slot_tag
from dhsched.worker.agent import Runtime, SessionAgent
from dhsched.worker.inbox import LiveInfo, SessionInbox
from dhsched.worker.log_lines import lines_of
from dhsched.worker.pull_client import Over, item_of
from dhsched.worker.session import Emission, Publish, Session
from dhsched.worker.values import state_of

POOL = "test"
CAPACITY = 8
CREDIT = 8  # Items that a runtime may have unacked, as an Infer-Controller's default.


@dataclass(frozen=True, slots=True)
class RefusedAck:
    """An ack that the fence refused: its generation was not the current one."""

    generation: Generation
    seq: int


class Cell:
    """The state of one test's live and Workers, which only steps of the model change."""

    def __init__(self) -> None:
        self.state: State = EMPTY
        self.acks: list[tuple[int, Any]] = []
        self.refused_acks: list[RefusedAck] = []
        self.logs: list[str] = []
        self._changed = asyncio.Event()
        self._rng = Random(1)

    def step(self, step: str, /, **arguments: Any) -> Any:
        now = int(asyncio.get_running_loop().time() * 1_000)
        self.state, outcome = take(step, self.state, now, DEFAULT_LIMITS, **arguments)
        self.notify()
        return outcome

    def new_mark(self) -> bytes:
        return items.new_mark(self._rng)

    def notify(self) -> None:
        """Wake `until`: something has changed."""
        self._changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Return once `condition` holds; it is checked after each change."""
        while not condition():
            self._changed.clear()
            await self._changed.wait()


class ModelWorker:
    """One boot on the cell. Its sessions claim and ack through it: it takes the place of a PullClient."""

    def __init__(
        self, cell: Cell, name: str, runtime: Runtime, *, teardown_s: float, publish: Publish | None = None
    ) -> None:
        self._cell = cell
        self._boot = name
        self._publish = publish
        self._inboxes: dict[str, SessionInbox] = {}
        self._pull_numbers: dict[str, int] = {}
        self._tasks: dict[str, asyncio.Task[Any]] = {}
        self._connected = True
        self._runtime = runtime
        registered: o.Registered = cell.step(
            "register_worker", name=name, boot=name, pool=POOL, capacity=CAPACITY, labels="", replaces=""
        )
        self.worker = registered.worker
        self.prepared: list[str] = []
        self.agent = SessionAgent(
            self._run, worker=self.worker, capacity=CAPACITY, pulls=self, say_depart=self._depart,
            say_prepared=self._report_soon, teardown_s=teardown_s,
        )  # fmt: skip
        self.report()

    async def _run(self, session: Session) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks[tag_of(session)] = task
        await self._runtime(session)

    # -- for the scripted live

    def report(self) -> None:
        """Report to the model, and give the agent its slot table."""
        if not self._connected:
            return
        said = self.agent.report()
        self.prepared = said.prepared
        answer: o.ReportOutcome = self._cell.step(
            "report", worker=self.worker, boot=self._boot, home=said.home, term=said.term, rev=said.rev,
            busy=said.busy, partly=said.partly,
        )  # fmt: skip
        if isinstance(answer, o.Gone):
            self.agent.stop_all()
        elif answer.table is not None:
            self.agent.take_table(
                home=answer.home, term=answer.term, rev=answer.rev, table=answer.table, base=answer.base
            )
        else:
            self.agent.act_soon()

    def cut_off(self) -> None:
        """Send no report from now on, and get none answered."""
        self._connected = False

    def kill(self) -> None:
        """Cancel every runtime, without a teardown. The Worker is cut off before."""
        for task in self._tasks.values():
            task.cancel()

    def serve(self) -> None:
        """Release what is due to each generation that has claimed here."""
        for tag in [*self._pull_numbers]:
            self._release(tag)

    # -- for the agent and its sessions

    def open(self, inbox: SessionInbox) -> asyncio.Future[LiveInfo]:
        session = inbox.session
        self._inboxes[tag_of(session)] = inbox
        answer: asyncio.Future[LiveInfo] = asyncio.get_running_loop().create_future()
        if self._cell.state.slots.get(self.worker, {}).get(tag_of(session)) not in ("starting", "running", "reserved"):
            answer.set_exception(Over())
            return answer
        live = self._cell.state.lives[session.live]
        answer.set_result(LiveInfo(live.digital_id, live.room, live.metadata, live.config, live.saved))
        return answer

    def claim(self, session: Session) -> None:
        # The answer comes later, as from a controller.
        asyncio.get_running_loop().call_soon(self._pull, tag_of(session))

    def ack(self, session: Session, n: int, mark: bytes, saved: bytes | None, journal: Change | None) -> None:
        names = {"live": session.live, "worker": self.worker, "epoch": session.generation.epoch}
        answer: o.AckOutcome = self._cell.step("ack_input", **names, n=n, saved=saved, journal=journal, mark=mark)
        if isinstance(answer, o.Acked):
            self._cell.acks.append((n, None if saved is None else state_of(saved)))
            asyncio.get_running_loop().call_soon(self._release, tag_of(session))
        else:
            self._cell.refused_acks.append(RefusedAck(session.generation, n))
            self._over(session)
        if not isinstance(answer, o.Acked) or answer.ended:
            self._report_soon()

    def emit(self, session: Session, emission: Emission) -> None:
        names = {"live": session.live, "worker": self.worker, "epoch": session.generation.epoch}
        self._cell.step("emit", **names, n=emission.n, name=emission.name, data=emission.data, told=emission.n - 1)
        if (inbox := self._inboxes.get(tag_of(session))) is not None:
            # Stored, or refused for good.
            inbox.stored(emission.n)

    def log(self, session: Session, source: Source, text: str | bytes) -> None:
        self._cell.logs += [line.decode(errors="replace") for line in lines_of(text)]

    def leave(self, session: Session) -> None:
        for each in (self._inboxes, self._pull_numbers, self._tasks):
            each.pop(tag_of(session), None)
        self._cell.notify()

    # -- steps

    def _pull(self, tag: str) -> None:
        if (inbox := self._inboxes.get(tag)) is None:
            return
        session = inbox.session
        after, mark = inbox.accepted
        answer: o.PullOutcome = self._cell.step(
            "pull", live=session.live, worker=self.worker, epoch=session.generation.epoch, after=after, mark=mark,
            controller=POOL, journal=inbox.wants_journal,
        )  # fmt: skip
        if not isinstance(answer, o.Pulling):
            self._over(session)
            return
        self._pull_numbers[tag] = answer.pull_no
        session.publish = self._publish
        if answer.journal is not None:
            inbox.journal_read(answer.journal_last, answer.journal)
        if not after:
            # Else a runtime has asked for its journal after its first item, and input simply goes on.
            inbox.begins_after(answer.after, answer.config, answer.saved)
        self._release(tag)

    def _release(self, tag: str) -> None:
        if (inbox := self._inboxes.get(tag)) is None or tag not in self._pull_numbers:
            return
        session = inbox.session
        after, mark = inbox.accepted
        answer: o.ReleaseOutcome = self._cell.step(
            "release_input", live=session.live, worker=self.worker, epoch=session.generation.epoch,
            pull_no=self._pull_numbers[tag], after=after, mark=mark, credit=CREDIT,
        )  # fmt: skip
        if isinstance(answer, o.Items):
            for seq, stored in enumerate(answer.items, answer.first):
                inbox.accept(item_of(seq, stored))
        elif not isinstance(answer, o.Nothing):
            self._over(session)

    def _over(self, session: Session) -> None:
        """Stop a generation that was refused. A Worker that is cut off gets no refusal."""
        self._pull_numbers.pop(tag_of(session), None)
        if self._connected:
            asyncio.get_running_loop().call_soon(self.agent.over, session)

    def _depart(self, live: str, number: int, reason: str) -> None:
        if self._connected:
            self._cell.step("depart", worker=self.worker, live=live, number=number, reason=reason)
            self._report_soon()

    def _report_soon(self) -> None:
        # Not now: the agent is in the middle of what made this report necessary.
        asyncio.get_running_loop().call_soon(self.report)


def tag_of(session: Session) -> str:
    return slot_tag(session.live, session.generation.epoch)
