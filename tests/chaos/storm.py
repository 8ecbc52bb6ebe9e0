"""One run: start, storm, heal, wait for calm, judge.

The judges of the trace work all the while; `until_red` ends a run at the first violation, which is how long a mutant
takes to be seen.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import aiohttp

from dhsched.errors import DhschedError
from dhsched.ownership import invariants
from dhsched.ownership.state import State
from dhsched.store.keys import Keys
from dhsched.store.raw import read_state
from dhsched.types import slot_tag
from tests.chaos import ledger
from tests.chaos.cluster import Cluster
from tests.chaos.deployment import Deployment, Size
from tests.chaos.faults import Fault, Injector, draw_faults, kinds_of
from tests.chaos.histories import RECORDS_AT_ONCE, Histories, Lost
from tests.chaos.hostile import Hostile
from tests.chaos.hostile_judge import HostileJudge, compare, of_others
from tests.chaos.hostile_links import Links
from tests.chaos.hostile_values import HOSTILE, VIEWED
from tests.chaos.load import Load
from tests.chaos.replay import Replay
from tests.chaos.report import Report, complaints
from tests.chaos.runtime import SHOWN
from tests.chaos.store import StoreKind
from tests.chaos.trace import TICKS

if TYPE_CHECKING:
    from tests.chaos.picture import Audience

FOLLOW_S = 0.2
CALM_S = 45.0  # For everything to be owned and flowing again after the storm.
CATCH_UP_S = 90.0  # Without one step that was followed.
FLOW_S = 20.0  # For a last item of every live to be consumed.
FINISH_S = 40.0  # For every application to learn what came of its last call.
SAY_S = 15.0  # A controller that lives this long after a loss has said what it knows to be lost.
FILL_S = 900.0  # For what the storm was too short to send.
ALONE_S = 600.0  # For every cell, while the hostile side is alone.
ALONE_REPEATS = 20  # Of each valid message, while the hostile side is alone.
EXPIRY_SLACK_MS = 2_000  # A look comes this long after a move's expiry at most, once all is well.


async def run(
    *,
    seed: int,
    storm_s: float,
    size: Size | None = None,
    faults: str = "all",
    store: StoreKind = "replicated",
    server: str | None = None,
    mutant: str = "",
    hostile: int = 0,
    until_red: bool = False,
    keep: Path | None = None,
    say: Callable[[str], None] = print,
) -> Report:
    """A whole run. `faults` are the kinds (faults.py); `server` is valkey or redis, without it what dhsched prefers;
    `hostile` is how often a hostile Worker and viewer repeat each valid message, 0 for no hostile side; `keep` is where
    logs and records are copied to in the end."""
    logging.getLogger("dhsched.store").setLevel(logging.ERROR)  # That the store comes and goes is the point.
    report = Report(seed, mutant)
    size = size or Size()
    drawn = draw_faults(seed, storm_s, size, kinds_of(faults, store), store)
    with tempfile.TemporaryDirectory(prefix="dhsched-chaos-", dir=memory_folder()) as folder:
        storm = Storm(Path(folder), size, report, say, store, server, hostile)
        deployment = storm.deployment
        try:
            await deployment.start()
            async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
                await storm.pass_over(Load(deployment, seed, http), drawn, until_red=until_red)
        finally:
            await deployment.stop()
        if keep is not None:
            shutil.copytree(folder, keep, dirs_exist_ok=True)
        report.violations += [f"a process was left behind: {each}" for each in deployment.leaked()]
    return report


def memory_folder() -> str | None:
    """Where flushing costs nothing, if there is such a place: the store flushes every step here."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


class Storm:
    """The run itself, and the deployment that it passes over."""

    load: Load

    def __init__(
        self,
        folder: Path,
        size: Size,
        report: Report,
        say: Callable[[str], None],
        store: StoreKind,
        server: str | None,
        hostile: int,
    ) -> None:
        self.histories = Histories(self._violation)
        if hostile:
            self.histories.tally.hostile = HostileJudge(VIEWED)
        self.deployment = Deployment(
            folder, size, self.histories, mutant=report.mutant, store=store, server=server, hostile=bool(hostile)
        )
        self.hostile: Hostile | None = None
        self._audience: Audience
        self._repeats = hostile
        self.report = report
        self._say = say
        self._red = asyncio.Event()
        self._began = 0.0

    @property
    def replay(self) -> Replay:
        """The model beside the store's history of the moment."""
        return self.histories.current

    async def pass_over(self, load: Load, faults: list[Fault], *, until_red: bool) -> None:
        self.load = load
        await self.load.configure()
        if self.deployment.hostile:
            for live in (SHOWN, VIEWED):
                await self.load.create(live)
        self._began = time.monotonic()
        injector = Injector(self.deployment, self.report.seed)
        async with self._following(), self._hostility():
            loading = asyncio.create_task(self.load.run())
            raging = asyncio.create_task(injector.run(faults, self._say))
            red = asyncio.create_task(self._red.wait())
            try:
                await asyncio.wait((raging, red) if until_red else (raging,), return_when=asyncio.FIRST_COMPLETED)
                self.report.faults = injector.done
                if until_red and self._red.is_set():
                    return
                raging.result()
                await self._heal(injector, loading)
                await self._alone()
                await self._judge()
            finally:
                for task in (loading, raging, red):
                    task.cancel()
                await asyncio.gather(loading, raging, red, return_exceptions=True)
                self._sum_up()

    # -- the hostile side

    @asynccontextmanager
    async def _hostility(self) -> AsyncIterator[None]:
        """Whatever a hostile Worker and a hostile viewer send, while the storm goes on."""
        if not self._repeats:
            yield
            return
        # These need the extra `avatar`; a storm without a hostile side does not.
        from tests.chaos.hostile_publishing import Publishing
        from tests.chaos.hostile_requests import Requests
        from tests.chaos.picture import watching

        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http,
            watching(self.deployment, http, self._tell_of_hostile) as self._audience,
        ):
            seed = self.report.seed
            self.hostile = Hostile(self.deployment, http, lambda: self.replay.state, seed, self._repeats)
            self.hostile.tell = self._tell_of_hostile
            for part in (Links(self.hostile), Requests(self.hostile, self._audience), Publishing(self.hostile)):
                self.hostile.add(part)
            self._sending = asyncio.create_task(self.hostile.run())
            try:
                yield
            finally:
                await self._stop_sending()
                self.report.coverage = [*self.hostile.coverage.lines()]
                self.report.frames, self.report.pictures = self._audience.frames, len({*self._audience.numbers})

    def _tell_of_hostile(self, what: str) -> None:
        self._violation(f"hostile: {what}")

    async def _stop_sending(self) -> None:
        if not self._sending.done():
            self._sending.cancel()
        [ended] = await asyncio.gather(self._sending, return_exceptions=True)
        if not isinstance(ended, asyncio.CancelledError):
            self._violation(f"hostile: nothing was sent any more: {ended!r}")

    async def _alone(self) -> None:
        """Every cell once more, while nothing else happens: what belongs to others is the same afterwards. Then the
        hostile Worker leaves, and the lives that it had go on elsewhere."""
        if self.hostile is None:
            return
        await self._catch_up()
        lost, before = self._losses(), of_others(self.replay.state, VIEWED)
        self._say("the hostile side is alone")
        try:
            await self.hostile.once(ALONE_REPEATS, ALONE_S)
        except TimeoutError:
            self._violation(f"hostile: not all could be sent again within {ALONE_S:g} s")
        await self._catch_up()
        slow = {worker for worker, _ in self._losses() - lost}
        for complaint in compare(before, of_others(self.replay.state, VIEWED), slow):
            self._violation(f"hostile: {complaint}")
        for complaint in self.hostile.coverage.lacking(self._repeats):
            self._violation(f"hostile: {complaint}")
        for complaint in self._audience.judge(self._generations(SHOWN), in_order=not self.histories.lost):
            self._violation(f"hostile: {complaint}")
        self.deployment.retire(HOSTILE)
        await self._until(self._restless, CALM_S, "calm without the hostile Worker")
        await self._flow("after all")

    def _generations(self, live: str) -> set[int]:
        """The epochs that a live ever had, in any history."""
        histories = [self.replay, *(each.replay for each in self.histories.lost)]
        return {epoch for each in histories if live in each.accounts for epoch in each.accounts[live].generations}

    def _losses(self) -> set[tuple[str, int]]:
        """The Workers that were called lost, each with the time. A machine that is busy with other work may be too slow
        for the short time after which that happens here."""
        return {(worker, each.lost_at) for worker, each in self.replay.state.workers.items() if each.lost_at}

    # -- the trace

    @asynccontextmanager
    async def _following(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self._follow())
        task.add_done_callback(self._follower_ended)
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _follow(self) -> None:
        """Read what the store has recorded, and judge it. A store that is away is asked again."""
        while True:
            with contextlib.suppress(DhschedError, OSError):
                server = self.deployment.store.server
                async with self.deployment.store.link() as link:
                    while True:
                        async with self.histories.reading:
                            if server is not self.deployment.store.server:
                                break
                            found = await self.histories.read(link, self.replay)
                        if found < RECORDS_AT_ONCE:
                            await asyncio.sleep(FOLLOW_S)
            await asyncio.sleep(FOLLOW_S)

    def _follower_ended(self, task: asyncio.Task[None]) -> None:
        """A judge that fails must not look like one that sees nothing."""
        if not task.cancelled():
            self._violation(f"the trace cannot be followed: {task.exception()!r}")

    def _violation(self, what: str, latest: Sequence[Any] = ()) -> None:
        """Note a violation; say the first one, with the steps before it."""
        if self.report.red_after_s is None:
            self.report.red_after_s = round(time.monotonic() - self._began, 1)
            self._say(f"VIOLATION after {self.report.red_after_s:g} s: {what}")
            for tick, step, arguments, answer in latest:
                self._say(f"    {tick} {step} {arguments} => {answer}")
        self.report.violations.append(what)
        self._red.set()

    # -- after the storm

    async def _heal(self, injector: Injector, loading: asyncio.Task[None]) -> None:
        """Lift every fault, let the applications finish, and wait until nothing is left to do."""
        began = time.monotonic()
        self.deployment.heal()
        await injector.settled()
        self.deployment.heal()
        if self.hostile is not None:
            await self._stop_sending()
            self._say(f"{len(self.hostile.coverage.lacking(self._repeats))} cells are to be sent after the storm")
            try:
                await self.hostile.fill(FILL_S)
            except TimeoutError:
                self._violation(f"hostile: not all could be sent within {FILL_S:g} s after the storm")
        self.load.closing = True
        try:
            await asyncio.wait_for(asyncio.shield(loading), FINISH_S)
        except TimeoutError:
            self._violation(f"an application has had no final answer {FINISH_S:g} s after the storm")
        await self._until(self._restless, CALM_S, "calm")
        await self._flow("last")
        self.report.calm_s = round(time.monotonic() - began, 1)

    async def _until(self, what_is_left: Callable[[], list[str]], wait_s: float, word: str) -> None:
        give_up = time.monotonic() + wait_s
        while not self.replay.diverged:
            with contextlib.suppress(aiohttp.ClientError, TimeoutError, OSError):
                await self.load.tidy_up()
            await asyncio.sleep(2 * FOLLOW_S)
            late = time.monotonic() > give_up  # Before we catch up: our own slowness is nobody's fault.
            await self._catch_up()
            left = what_is_left()
            if not left:
                return
            if late:
                for each in left[:10]:
                    self._violation(f"no {word} after {wait_s:g} s: {each}")
                return

    async def _catch_up(self) -> None:
        """Follow the trace to what the store has done by now."""
        async with self.deployment.store.link() as link:
            tick = int(await link.call("GET", Keys("main").of(TICKS)) or 0)
        seen, give_up = self.replay.tick, time.monotonic() + CATCH_UP_S
        while self.replay.tick < tick:
            if self.replay.tick > seen:
                seen, give_up = self.replay.tick, time.monotonic() + CATCH_UP_S
            if time.monotonic() > give_up:
                raise RuntimeError(f"{tick - seen} steps behind the store, and none was followed for {CATCH_UP_S:g} s")
            await asyncio.sleep(FOLLOW_S)

    def _restless(self) -> list[str]:
        """What is not yet as it should be in the end, from the model's state."""
        state, left = self.replay.state, []
        names = {worker.name for worker in state.workers.values() if worker.placeable}
        for name in sorted(name for name in self.deployment.roles if name.startswith("worker")):
            if name not in names:
                boots = {each: record for each, record in state.workers.items() if record.name == name}
                left.append(f"{name} (pid {self.deployment.roles[name].pid}) is not back: {boots or 'no boot of it'}")
        for live, record in state.lives.items():
            if record.state == "ended":
                continue
            slot = state.slots.get(record.selected, {}).get(slot_tag(live, record.epoch))
            if record.active is None or slot != "running" or record.acked != record.appended or record.move:
                left.append(
                    f"{live} at {record.generation} is {slot}, acked {record.acked} of {record.appended},"
                    f" waits for {record.waits or 'nothing'}, {record.tries} tries, move {record.move}"
                )
        for worker, table in state.slots.items():
            left += [f"{worker} has {tag} {slot}" for tag, slot in table.items() if slot == "departing"]
        return left

    async def _flow(self, word: str) -> None:
        """Give every live that goes on one more item, and wait until all are consumed."""
        await self._probe(word)
        await self._catch_up()
        await self._until(self._restless, FLOW_S, "flow")

    async def _probe(self, word: str) -> None:
        r = Random(self.report.seed)
        state = self.replay.state
        for live, told in self.load.told.items():
            record = state.lives.get(f"default/{live}")
            if record is not None and record.state == "open":
                await self.load.push(told, r, {"text": f"say {live}.{word}"})

    async def _judge(self) -> None:
        """Everything that must be true of a deployment that has come to rest."""
        for violation in [*await self._final_state(), *await self.deployment.store.stray_keys()]:
            self._violation(violation)
        if not self.histories.lost:
            for line in self._losses_said():
                self._violation(f"ledger: nothing is lost, and somebody says so: {line}")
        await self._catch_up()
        besides = HOSTILE if self.hostile else ""
        records = ledger.read_records(self.deployment.records, besides)
        if not self.replay.diverged:
            lost = [self._taken_back(each) for each in self.histories.lost]
            capacity = self.deployment.size.capacity
            found = ledger.check(records, self.load.told, self.replay.accounts, capacity, lost, besides)
            for violation in found:
                self._violation(f"ledger: {violation}")
        self.report.consumed = len(records.consumed)
        self.report.consumed_twice = ledger.consumed_twice(records)

    def _taken_back(self, lost: Lost) -> ledger.TakenBack:
        """A lost history for the ledger: its books, and who did not live long enough to say that it is lost."""
        silent = {pid for pid, at in self.deployment.ended_at.items() if at < lost.until + SAY_S}
        said = any(home in line for home in lost.homes for line in self._losses_said())
        return ledger.TakenBack(lost.since, lost.until, lost.replay.accounts, said, silent)

    def _losses_said(self) -> list[str]:
        """What Infer-Controllers have written into their logs about losses."""
        logs = [self.deployment.log_of(name) for name in self.deployment.roles if name.startswith("infer")]
        return [line for log in logs for line in log.read_text(errors="replace").splitlines() if "store_lost" in line]

    async def _final_state(self) -> list[str]:
        """The raw keys against the model that followed every step, and against themselves."""
        for _ in range(50):
            async with self.deployment.store.link() as link:
                before = await link.call("GET", Keys("main").of(TICKS))
                found = await read_state(link, "main")
                after = await link.call("GET", Keys("main").of(TICKS))
            if before == after:
                await self._catch_up()
                return [*self._compare(found, int(after)), *invariants.of_state(found)]
        return ["the store did not come to rest for a picture of it"]

    def _compare(self, found: State, tick: int) -> list[str]:
        late = [
            f"{live}: its move expired {self.replay.now - record.move.expires} ms ago"
            for live, record in found.lives.items()
            if record.move and record.move.expires + EXPIRY_SLACK_MS < self.replay.now
        ]
        if self.replay.diverged:
            return late
        if self.replay.tick != tick:
            # Somebody reported in between: the picture is of an earlier moment than the model.
            return late
        # `blame` expires by itself in the store, and the model counts no calls.
        found = replace(found, cell=replace(found.cell, pos=self.replay.state.cell.pos))
        fields = [
            name
            for name in State.__dataclass_fields__
            if name != "blame" and getattr(found, name) != getattr(self.replay.state, name)
        ]
        return late + [f"the store and the model that followed it differ in {name}" for name in fields]

    def _sum_up(self) -> None:
        report, replay, tally = self.report, self.replay, self.histories.tally
        report.hostile_steps = tally.hostile.steps if tally.hostile else 0
        report.steps, report.moved, report.judged_s = tally.steps, tally.moved, tally.cpu_s
        report.lives = len(replay.accounts)
        report.lost = sum(len(ledger.taken_back(told, replay.accounts)) for told in self.load.told.values())
        report.accepted = sum(len(told.accepted) for told in self.load.told.values())
        report.dropped = Counter(why for account in replay.accounts.values() for why in account.dropped.values())
        report.answers = self.load.answers + tally.answers
        if isinstance(store := self.deployment.store, Cluster):
            report.resharded, report.keys_moved = store.resharded, store.keys_moved
        for role in self.deployment.roles.values():
            report.exits.update(f"{role.kind} {status}" for status in role.exits)
            report.logged += complaints(self.deployment.log_of(role.name))
