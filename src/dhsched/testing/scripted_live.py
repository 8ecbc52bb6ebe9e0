"""A live for tests of runtimes: the test decides its input, crashes, moves and end, as a deployment would."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from dhsched.errors import BadValue, RuntimeFailed
from dhsched.ownership import items
from dhsched.ownership import outcomes as o
from dhsched.ownership.state import Journal as StoredJournal
from dhsched.ownership.state import Live
from dhsched.ownership.steps.emit import read_emit
from dhsched.ownership.steps.place import Create
from dhsched.testing.model_worker import Cell, ModelWorker, RefusedAck
from dhsched.types import Cause, Generation, Kind
from dhsched.worker.agent import TEARDOWN_S, Runtime
from dhsched.worker.exec import Exec, exec_runtime
from dhsched.worker.inbox import SessionInbox
from dhsched.worker.journal import entry_of
from dhsched.worker.pull_client import item_of
from dhsched.worker.session import Item, Publish, Session
from dhsched.worker.values import raw_state, state_of

LIVE = "test/live"
WAIT_S = 10.0  # A wait that takes longer raises TimeoutError, which says where the live stands.
CANCELLED_S = 5.0  # A runtime that ignores its cancellation for this long is left behind.


@contextlib.asynccontextmanager
async def live(
    runtime: Runtime | Exec,
    *,
    config: dict[str, Any] | None = None,
    state: Any = None,
    journal: Sequence[Any] = (),
    metadata: dict[str, Any] | None = None,
    digital_id: str = "test",
    room: str = "",
    publish: Publish | None = None,
    shared: Any = None,
    device: str = "",
    wait_s: float = WAIT_S,
    teardown_s: float = TEARDOWN_S,
) -> AsyncIterator[ScriptedLive]:
    """Run `runtime` for one live, from the claim of its first generation to its end, and yield the live.

    `state` is what an earlier generation saved, `journal` the entries that it wrote, `shared` what `setup` would
    return. At the end of the block the live ends: a runtime that does not stop within `teardown_s` fails the test.
    RuntimeFailed is raised if the runtime ends by itself and the test does not call `failed`.
    """
    with contextlib.ExitStack() as stack:
        run_one = stack.enter_context(exec_runtime(runtime.command)) if isinstance(runtime, Exec) else runtime

        async def run(session: Session) -> None:
            session.shared, session.device = shared, device
            await run_one(session)

        scripted = ScriptedLive(run, publish=publish, wait_s=wait_s, teardown_s=teardown_s)
        scripted._create(
            Create(digital_id, "test", room, encoded(metadata), encoded(config)),
            b"" if state is None else raw_state(state),
            StoredJournal(len(journal), tuple(map(entry_of, journal))),
        )
        try:
            await scripted._claimed()
            yield scripted
        except BaseException:
            await scripted._stop()
            raise
        await scripted.end()


class ScriptedLive:
    """One live. Every call that waits raises TimeoutError after `wait_s`, and RuntimeFailed if the runtime ends by
    itself meanwhile."""

    def __init__(self, runtime: Runtime, *, publish: Publish | None, wait_s: float, teardown_s: float) -> None:
        self.sessions: list[Session] = []
        self._runtime = runtime
        self._publish = publish
        self._wait_s = wait_s
        self._teardown_s = teardown_s
        self._cell = Cell()
        self._workers: list[ModelWorker] = []
        self._errors: dict[Generation, Exception | None] = {}
        self._cancelled = False  # Whether a runtime was told to stop, did not, and was cancelled.
        self._placed = 0
        self._pushed = 0

    # -- what is known of the live

    @property
    def session(self) -> Session:
        """Return the session of the current generation."""
        return next(each for each in self.sessions if each.generation == self.generation)

    @property
    def generation(self) -> Generation:
        return self._live.generation

    @property
    def last_acked(self) -> int:
        """Return the item up to which everything is acked; 0 if nothing is."""
        return self._live.acked

    @property
    def saved_state(self) -> Any:
        """Return the state that was saved with the last ack: what the next generation is given."""
        return state_of(self._live.saved)

    @property
    def logs(self) -> list[str]:
        """Return the lines of the live's log, of all generations: those of `session.log`, and the standard error of
        children."""
        return self._cell.logs

    @property
    def late_s(self) -> float:
        """Return how many seconds of output the runtimes of all generations have reported as late (`Session.late`)."""
        return sum(SessionInbox(session).late_s for session in self.sessions)

    @property
    def emits(self) -> list[tuple[str, Any]]:
        """Return the messages that were stored for the application, oldest first: name and data."""
        return [(name, msgspec.json.decode(data)) for _, _, name, data in map(read_emit, self._live.emits)]

    @property
    def journal(self) -> list[Any]:
        """Return the entries of the journal that acks have stored: what the next generation reads."""
        return [state_of(entry) for entry in self._live.journal.entries]

    @property
    def config(self) -> dict[str, Any]:
        """Return the configuration that the next generation is given."""
        return msgspec.json.decode(self._live.config or b"{}", type=dict[str, Any])

    @property
    def ended(self) -> bool:
        return self._live.state == "ended"

    @property
    def acks(self) -> list[tuple[int, Any]]:
        """Return each ack that counted: the item's number, and the state if the ack saved a new one, else None."""
        return self._cell.acks

    @property
    def refused_acks(self) -> list[RefusedAck]:
        """Return the acks of generations that were not the current one any more."""
        return self._cell.refused_acks

    @property
    def dead_letters(self) -> list[Item]:
        """Return the items that were dropped because three generations ended at them."""
        return [item_of(0, items.read_dead_letter(letter)[0]) for letter in self._live.dead]

    # -- input

    async def push(self, text: str, *, boundary: bool = False) -> int:
        """Send one text item; return its number. With `boundary` a sentence ends here, so a move may follow it."""
        return await self._push("text", text.encode(), boundary)

    async def configure(self, config: dict[str, Any]) -> int:
        """Send a new configuration as an item; return its number."""
        return await self._push("config", encoded(config), False)

    async def interrupt(self, text: str = "") -> int:
        """Interrupt: every item that is not acked is dropped. Return the number of the interrupt itself."""
        return await self._push("interrupt", text.encode(), True)

    async def acked(self, seq: int | None = None) -> None:
        """Wait until the runtime has acked item `seq`, or without it everything that was pushed."""
        wanted = self._live.appended if seq is None else seq
        await self._until(lambda: self.last_acked >= wanted, f"an ack of item {wanted}")

    async def until(self, condition: Callable[[], object], what: str = "the condition") -> None:
        """Wait until `condition` is true; it is checked every millisecond."""
        async with self._limit(what):
            while not condition():
                self._raise_if_failed()
                await asyncio.sleep(0.001)

    # -- faults and moves

    async def crash(self) -> None:
        """Kill the runtime's Worker as `kill -9` does, and wait until the next generation has claimed elsewhere.

        The killed runtime is cancelled after the live has gone on, so nothing that its cleanup does can reach the live.
        """
        self._lose().kill()
        await self._claimed()

    async def cut_off(self) -> Session:
        """Cut the runtime's Worker off and go on elsewhere. Return the old session: its runtime is told nothing and
        runs on, gets no more input, and its acks are refused."""
        old = self.session
        self._lose()
        await self._claimed()
        return old

    async def prepare(self) -> Session:
        """Begin a planned move: build the runtime on another Worker, up to its first request for input. Return its
        session, which claims nothing before `move`."""
        target = self._new_worker()
        answer = self._cell.step("reserve", live=LIVE, expected=self.generation.epoch, candidates=(target.worker,))
        assert isinstance(answer, o.Reserved), answer
        target.report()
        await self._until(lambda: bool(target.prepared), "a prepared runtime")
        return next(each for each in self.sessions if each.generation == Generation(target.worker, answer.number))

    async def move(self) -> None:
        """Move as a drain does: prepare (unless that is done), wait for a boundary, cut over, and wait for the claim.

        Only a boundary, an interrupt or the end of the input lets the live move: a runtime that acks nothing keeps it.
        """
        if self._live.move is None:
            await self.prepare()
        move = self._live.move
        assert move is not None
        self._cell.step("hold", live=LIVE, number=move.number)
        await self._until(lambda: self._rests(), "the ack of a boundary")
        self._place("rebalance", move.target, at_boundary=True)
        await self._claimed()

    async def reassign(self) -> None:
        """Move at once, in the middle of an item: the old runtime is told to stop, and its acks are refused."""
        self._place("reassign", self._new_worker().worker)
        await self._claimed()

    async def failed(self) -> Exception | None:
        """Wait until the runtime ends by itself; return its exception, None if it returned. Then the live is placed
        anew on the same Worker, as Dispatch would do: wait for the next claim, or the next failure."""
        await self._until(self._is_vacant, "the end of the runtime", may_fail=True)
        ended = self.generation
        self._place("recover", ended.worker)
        await self._until(lambda: self._is_claimed() or self._is_vacant() or self.ended, "a claim", may_fail=True)
        return self._errors[ended]

    async def end(self) -> None:
        """End the live and wait until its runtimes have stopped, within `teardown_s`."""
        self._raise_if_failed()
        self._cell.step("end_live", live=LIVE, after_pending=False)
        if not await self._stop():
            raise RuntimeFailed(f"the runtime has not stopped {self._teardown_s:g} s after its live ended")
        if self.generation in self._errors and (error := self._errors[self.generation]) is not None:
            raise RuntimeFailed(f"the runtime raised {error!r} after its live ended") from error

    # -- how

    @property
    def _live(self) -> Live:
        return self._cell.state.lives[LIVE]

    @property
    def _worker(self) -> ModelWorker:
        return next(each for each in self._workers if each.worker == self.generation.worker)

    def _create(self, create: Create, saved: bytes, journal: StoredJournal) -> None:
        self._place("create", self._new_worker().worker, create)
        state = self._cell.state
        record = replace(state.lives[LIVE], saved=saved, journal=journal)
        self._cell.state = replace(state, lives={**state.lives, LIVE: record})

    def _new_worker(self) -> ModelWorker:
        made = ModelWorker(
            self._cell, f"worker-{len(self._workers) + 1}", self._run, teardown_s=self._teardown_s,
            publish=self._publish,
        )  # fmt: skip
        self._workers.append(made)
        return made

    async def _run(self, session: Session) -> None:
        """Run the runtime, and keep what it raised: the agent only logs that."""
        self.sessions.append(session)
        try:
            await self._runtime(session)
            self._errors[session.generation] = None
        except Exception as error:
            self._errors[session.generation] = error
            raise
        except asyncio.CancelledError:
            self._cancelled = self._cancelled or session.stopping.is_set()
            raise

    def _place(self, cause: Cause, worker: str, create: Create | None = None, *, at_boundary: bool = False) -> None:
        self._placed += 1
        answer = self._cell.step(
            "place", live=LIVE, operation=f"place-{self._placed}", cause=cause, create=create,
            expected=0 if create else self.generation.epoch, candidates=(worker,), at_boundary=at_boundary,
        )  # fmt: skip
        assert isinstance(answer, o.Committed | o.Ended), answer
        for each in self._workers:
            each.report()

    def _lose(self) -> ModelWorker:
        """Have the live's Worker called lost, and place the live on another one."""
        lost = self._worker
        lost.cut_off()
        self._cell.step("expire_worker", worker=lost.worker, beat=self._cell.state.workers[lost.worker].beat)
        self._place("recover", self._new_worker().worker)
        return lost

    async def _push(self, kind: Kind, payload: bytes, boundary: bool) -> int:
        self._raise_if_failed()
        self._pushed += 1
        answer: o.AppendOutcome = self._cell.step(
            "append_input", live=LIVE, kind=kind, payload=payload, boundary=boundary,
            request=f"push-{self._pushed}", mark=self._cell.new_mark(),
        )  # fmt: skip
        if not isinstance(answer, o.Appended):
            raise BadValue(f"the live takes no input: {answer}")
        for each in self._workers:
            each.serve()
        await asyncio.sleep(0)
        return answer.seq

    def _rests(self) -> bool:
        return self._live.held and self._live.acked == self._live.released

    def _is_claimed(self) -> bool:
        return self._live.active is not None

    def _is_vacant(self) -> bool:
        generation = self.generation
        return self._cell.state.slots.get(generation.worker, {}).get(f"{LIVE}@{generation.epoch}") == "vacant"

    def _raise_if_failed(self) -> None:
        if self._live.state == "ended" or not self._is_vacant():
            return
        error = self._errors.get(self.generation)
        said = "returned although its live goes on" if error is None else f"raised {error!r}"
        raise RuntimeFailed(f"the runtime of generation {self.generation.epoch} {said}") from error

    async def _claimed(self) -> None:
        await self._until(self._is_claimed, "a claim: the runtime must ask for input")

    async def _until(self, condition: Callable[[], bool], what: str, *, may_fail: bool = False) -> None:
        def done() -> bool:
            if condition():
                return True
            if not may_fail:
                self._raise_if_failed()
            return False

        async with self._limit(what):
            await self._cell.until(done)

    @contextlib.asynccontextmanager
    async def _limit(self, what: str) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._wait_s):
                yield
        except TimeoutError:
            live = self._live
            raise TimeoutError(
                f"waited {self._wait_s:g} s for {what}: {live.appended} items pushed, {live.released} given to the "
                f"runtime, {live.acked} acked, generation {live.epoch}"
            ) from None

    async def _stop(self) -> bool:
        """Stop every runtime that is left; return whether all stopped in time."""
        for each in self._workers:
            each.agent.stop_all()
        stopped = asyncio.gather(*(each.agent.stopped() for each in self._workers))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._teardown_s + CANCELLED_S):
                await stopped
            return not self._cancelled
        return False


def encoded(value: dict[str, Any] | None) -> bytes:
    return msgspec.json.encode(value) if value else b""
