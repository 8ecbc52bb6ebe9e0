"""A hostile Worker: it has a machine key and boots of its own, and sends every wrong value of every field.

Its honest half is a Worker process like the others (`evil-1`, deployment.py): it holds slots, pulls and acks. This
module is the other half, on connections of its own with the same key and the same boot token. What it knows of others
is all that there is to know: the driver gives it the state of the cell. It goes on while the faults do, and then once
more alone (storm.py), and counts what it sent (`Coverage`).

Its traffic goes to loopback alone, at PER_S messages a second at most.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, get_args

import aiohttp
from yarl import URL

from dhsched.access.bucket import Bucket
from dhsched.dispatch.worker_link import PATH as LINK
from dhsched.infer.pull import PATH as PULL
from dhsched.links import messages as m
from dhsched.ownership.state import Live, State
from dhsched.tokens import Boot, Tokens
from dhsched.types import MARK_BYTES, slot_tag
from tests.chaos.deployment import Deployment
from tests.chaos.hostile_values import (
    EVIL,
    HOSTILE,
    NO_FIELD,
    SINGLE,
    Coverage,
    Known,
    Row,
    as_array,
    fields_of,
    is_hostile,
    is_lent,
    rows_of,
    with_field,
    wrong,
)
from tests.chaos.load import path_of

PER_S = 1_500.0  # Messages a second of the hostile side; past this it waits.
REPEATS = 10_000
ANSWER_S = 2.0  # A connection that has not answered a ping for this long says nothing more about the message before it.
LATER_S = 0.05
REPEATING_S = 10.0  # A message is repeated for so long, then others have their turn.
SPARED = 0.8  # Share of exits and drains that are of another boot than the one that has lives.
PAUSE_S = 0.05  # After a connection that failed: a controller is down.
MARK = EVIL.encode().ljust(MARK_BYTES, b"!")
FRAME = {m.Depart: 256, m.Open: 256, m.Pull: 256, m.Ack: 256, m.Leave: 256, m.Hello: 256}
"""Messages of one kind in a frame; of others REPEATS_MAX, because more end a Worker's link."""
GREETINGS = (m.Register, m.Resume, m.Hello)
WORKER_MESSAGES: dict[str, type[m.Message]] = {
    **{f"link {each.__name__.lower()}": each for each in get_args(m.FromWorker)},
    **{f"pull {each.__name__.lower()}": each for each in get_args(m.PullSays)},
}
"""Every message that a Worker sends on a link, by the name of its rows."""


def worker_rows() -> list[Row]:
    return [row for name, kind in WORKER_MESSAGES.items() for row in rows_of(name, kind)]


class NotNow(Exception):
    """This cannot be sent now: the hostile Worker has no slot, or a controller does not answer."""


@dataclass(frozen=True, slots=True)
class Target:
    """A live and the Worker that it is on, with what a message about it would say."""

    live: str
    record: Live
    worker: str

    @property
    def tag(self) -> str:
        return slot_tag(self.live, self.record.epoch)


@dataclass
class Prey:
    """What the hostile Worker knows at the moment: its own boots, and one live of its own and one of another's."""

    state: State
    boot: Boot
    earlier: Boot
    own: Target
    other: Target

    @property
    def other_boot(self) -> Boot:
        return boot_of(self.state, self.other.worker)


def boot_of(state: State, worker: str, key: str = "") -> Boot:
    record = state.workers[worker]
    return Boot(worker, record.boot, record.name, record.pool, record.capacity, key)


@dataclass
class Hostile:
    """The hostile half. `state` returns the state of the cell; `leaks` are answers about what is not its own."""

    deployment: Deployment
    http: aiohttp.ClientSession
    state: Callable[[], State]
    seed: int
    repeats: int = REPEATS
    leaks: list[str] = field(default_factory=list)
    coverage: Coverage = field(default_factory=lambda: Coverage(worker_rows()))

    def __post_init__(self) -> None:
        self.rng = Random(f"hostile {self.seed}")
        self._bucket = Bucket(PER_S, time.monotonic())

    # -- what is sent, and when

    async def run(self) -> None:
        """Send every cell again and again, and the valid messages `repeats` times, until cancelled."""
        await asyncio.gather(self._singles(), self._repeat_all(self.repeats))

    async def once(self, repeats: int, wait_s: float) -> None:
        """Send every cell once, and the valid messages `repeats` times; raise TimeoutError if that takes too long."""
        async with asyncio.timeout(wait_s):
            for cell in self._shuffled():
                while await self._try(lambda cell=cell: self.send(*cell)) is None:  # type: ignore[misc]
                    pass
            await self._repeat_all(repeats, more=True)

    async def fill(self, wait_s: float) -> None:
        """Send what is still lacking; raise TimeoutError if that takes too long."""
        async with asyncio.timeout(wait_s):
            for cell in self._shuffled():
                while not self.coverage.sent[cell]:
                    await self._try(lambda cell=cell: self.send(*cell))  # type: ignore[misc]
            await self._repeat_all(self.repeats)

    async def _singles(self) -> None:
        while True:
            for cell in self._shuffled():
                await self._try(lambda cell=cell: self.send(*cell))  # type: ignore[misc]

    def _shuffled(self) -> list[tuple[Row, str]]:
        cells = [(row, kind) for row in self.coverage.rows for kind in SINGLE]
        self.rng.shuffle(cells)
        return cells

    async def _repeat_all(self, repeats: int, *, more: bool = False) -> None:
        """Repeat each valid message so often, or with `more` so often once more."""
        for message in dict.fromkeys(row.message for row in self.coverage.rows):
            done = 0 if more else min(self.coverage.sent[row, "repeated"] for row in self.rows_of(message))
            left = repeats - done
            while left > 0:
                left -= await self._try(lambda message=message, left=left: self.repeat(message, left)) or 0  # type: ignore[misc]

    async def _try(self, send: Callable[[], Awaitable[int | None]]) -> int | None:
        try:
            async with asyncio.timeout(10 * ANSWER_S):
                return await send()
        except NotNow:
            await self._lend()
        except (aiohttp.ClientError, OSError, TimeoutError):
            pass
        await asyncio.sleep(PAUSE_S)
        return None

    def rows_of(self, message: str) -> list[Row]:
        return [row for row in self.coverage.rows if row.message == message]

    async def pace(self, count: int = 1) -> None:
        """Wait until `count` more messages may be sent."""
        await asyncio.sleep(self._bucket.owe(count, time.monotonic()))

    async def _lend(self) -> None:
        """As an operator: make the hostile Worker ready again and move lent lives to it, if it has none."""
        state = self.state()
        worker, _ = boots_of(state)
        if not worker:
            return
        record = state.workers[worker]
        if record.mode != "ready":
            method, verb = ("POST", "uncordon") if record.mode == "cordoned" else ("DELETE", "drain")
            await self._operate(method, path_of(worker, verb))
        for live, each in state.lives.items():
            if is_lent(live) and each.state == "open" and each.selected != worker:
                body = {"expected_epoch": each.epoch, "target": worker}
                await self._operate("POST", f"/v1/lives/{live.partition('/')[2]}/reassign", body)

    async def _operate(self, method: str, path: str, body: Any = None) -> None:
        url = URL(self.rng.choice(self.deployment.dispatch) + path, encoded=True)
        timeout = aiohttp.ClientTimeout(total=ANSWER_S)
        with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):
            async with self.http.request(
                method, url, json=body, timeout=timeout, headers=self.deployment.access.headers()
            ) as response:
                await response.read()

    async def send(self, row: Row, kind: str) -> int:
        """Send one cell; count it once it is on its way."""
        message = WORKER_MESSAGES[row.message]
        prey = self.prey(message)
        given = valid(message, prey, self.tokens)
        type_ = fields_of(message)[row.field]
        value = wrong(kind, type_, known_of(row.field, prey, self.tokens, given.get(row.field)))
        attacks = [with_field(given, row.field, value)]
        if kind == "another's" and row.field != NO_FIELD:
            attacks.append(of_other(message, prey, given, self.tokens))
        for attack in attacks:
            await self.pace()
            came = await self._say(message, [as_array(message, attack)], prey)
            self.coverage.count(row, kind, came)
        return len(attacks)

    async def repeat(self, message: str, times: int) -> int:
        """Send the same valid message up to `times` times, on as few connections as will do; return how often."""
        kind = WORKER_MESSAGES[message]
        prey = self.prey(kind)
        one = as_array(kind, valid(kind, prey, self.tokens))
        size = min(FRAME.get(kind, m.REPEATS_MAX), times)
        sent, until = 0, time.monotonic() + REPEATING_S
        while sent < times and time.monotonic() < until:
            async with self._connected(kind, prey) as socket:
                while sent < times and not socket.closed:
                    await self.pace(size)
                    await socket.send_bytes(m.encode([one] * size))
                    came = await self._answers(socket, kind)
                    sent += size
                    self.coverage.repeated(message, came, size)
        return sent

    # -- connections

    @property
    def tokens(self) -> Tokens:
        return Tokens(self.deployment.access.ring)

    @contextlib.asynccontextmanager
    async def _connected(self, kind: type[m.Message], prey: Prey) -> Any:
        """A connection that has greeted as the hostile boot, unless the message is a greeting itself."""
        to_infer = kind in get_args(m.PullSays)
        urls = self.deployment.infer if to_infer else self.deployment.dispatch
        own = self.tokens.issue(prey.boot)
        shown = self.deployment.access.headers("hostile") if kind is m.Register else {"Authorization": f"Bearer {own}"}
        url = self.rng.choice(urls) + (PULL if to_infer else LINK)
        async with asyncio.timeout(ANSWER_S):
            socket = await self.http.ws_connect(url, headers=shown, autoping=False, max_msg_size=0)
        try:
            if kind not in GREETINGS:
                await socket.send_bytes(m.encode([m.Hello(own) if to_infer else m.Resume(own)]))
            yield socket
        finally:
            with contextlib.suppress(TimeoutError, OSError):
                await asyncio.wait_for(socket.close(), ANSWER_S)

    async def _say(self, kind: type[m.Message], said: list[Any], prey: Prey) -> str:
        """Send messages on a new connection; after a greeting also what its sender may do, and another may not."""
        if kind in GREETINGS:
            live, epoch = prey.other.live, prey.other.record.epoch
            follow: list[m.Message] = [m.Depart(live, epoch, EVIL)]
            if kind is m.Hello:
                follow = [m.Pull(live, epoch, 0, MARK), m.Ack(live, epoch, prey.other.record.appended, MARK, MARK)]
            said = [*said, *follow]
        async with self._connected(kind, prey) as socket:
            await socket.send_bytes(m.encode(said))
            return await self._answers(socket, kind)

    async def _answers(self, socket: aiohttp.ClientWebSocketResponse, kind: type[m.Message]) -> str:
        """Read what is answered before a ping is; return a word for it."""
        read: Callable[[bytes], list[Any]] = m.read_infer_says if kind in get_args(m.PullSays) else m.read_from_dispatch
        word = "ignored"
        try:
            if kind in (m.Open, m.Pull, m.Hello):
                await asyncio.sleep(LATER_S)  # These are answered beside the connection, after the ping would be.
            await socket.ping()
            async with asyncio.timeout(ANSWER_S):
                async for message in socket:
                    if message.type is aiohttp.WSMsgType.PONG:
                        return word
                    if message.type is aiohttp.WSMsgType.PING:
                        await socket.pong(message.data)
                    elif message.type is aiohttp.WSMsgType.BINARY:
                        for said in read(message.data):
                            self._check(said)
                            if isinstance(said, m.Problem | m.Stale | m.Gone):
                                word = "refused"
                            elif word == "ignored" and not isinstance(said, m.Welcome | m.Wake):
                                word = "answered"
        except (TimeoutError, ConnectionError, OSError):
            pass
        return "refused" if word == "refused" else "closed" if socket.closed else word

    def _check(self, said: Any) -> None:
        """What a Worker is told of a live is of a live that it has, or had a moment ago."""
        if isinstance(said, m.Opened | m.Pulling | m.Items) and not is_lent(said.live):
            self.leaks.append(f"the hostile Worker was sent {type(said).__name__} of {said.live}")

    def prey(self, kind: type[m.Message]) -> Prey:
        """What the hostile Worker works with now. Raise NotNow if it has no boot, or no live, or there is no other."""
        state, key = self.state(), self.deployment.access.records["hostile"].id
        worker, others_of_it = boots_of(state)
        if not worker:
            raise NotNow
        own, others = list[Target](), list[Target]()
        for live, record in state.lives.items():
            if record.state != "ended" and record.selected:
                mine = record.selected == worker
                if mine or not is_hostile(record.selected):
                    (own if mine else others).append(Target(live, record, record.selected))
        others = [each for each in others if each.worker in state.workers and not is_lent(each.live)]
        if not own or not others:
            raise NotNow
        boot = boot_of(state, worker, key)
        never = Boot(f"{HOSTILE}#0", "boot-of-before", HOSTILE, boot.pool, boot.capacity, key)
        earlier = boot_of(state, others_of_it[0], key) if others_of_it else never
        if kind in (m.Exit, m.Drain) and self.rng.random() < SPARED and others_of_it:
            boot = earlier  # Otherwise it would hardly ever have a live.
        return Prey(state, boot, earlier, self.rng.choice(own), self.rng.choice(others))


def boots_of(state: State) -> tuple[str, list[str]]:
    """The boot of the honest half, empty if there is none, and all others of its name: it registers some in vain."""
    boots = [worker for worker, record in state.workers.items() if record.name == HOSTILE]
    there = [each for each in boots if not state.workers[each].gone and not state.workers[each].lost]
    best = max(there, key=lambda each: state.workers[each].beat, default="")
    return best, [each for each in boots if each != best]


# -- values


def valid(kind: type[m.Message], prey: Prey, tokens: Tokens) -> dict[str, Any]:
    """A valid message of this kind of the hostile Worker, as a map. A field that this module does not know of has the
    value of its default."""
    known = {name: value.own for name, value in known_values(prey, tokens).items()}
    defaults = {name: default_of(kind, name) for name in kind.__struct_fields__}
    return {name: known.get(name, defaults[name]) for name in kind.__struct_fields__}


def default_of(kind: type[m.Message], name: str) -> Any:
    names, defaults = kind.__struct_fields__, kind.__struct_defaults__
    at = names.index(name) - (len(names) - len(defaults))
    return defaults[at] if at >= 0 and not callable(defaults[at]) else None


def known_of(name: str, prey: Prey, tokens: Tokens, own: Any) -> Known:
    return known_values(prey, tokens).get(name, Known(own))


def known_values(prey: Prey, tokens: Tokens) -> Mapping[str, Known]:
    """For each field of a Worker's messages: its own value, another's, one of before, one of the time to come."""
    own, other, state, boot, victim = prey.own, prey.other, prey.state, prey.boot, prey.other_boot
    mine, theirs = own.record, other.record
    worker, another = state.workers[own.worker], state.workers[other.worker]
    cell, next_id = state.cell, state.cell.workers_issued + 1
    earlier_home = cell.homes[-2].name if len(cell.homes) > 1 else "0" * 16
    ahead = Boot(f"{HOSTILE}#{next_id}", f"{EVIL}-next", HOSTILE, boot.pool, boot.capacity, boot.key)
    numbers = Known(mine.epoch, theirs.epoch, max(1, mine.epoch - 1), mine.epoch + 1)
    return {
        "name": Known(HOSTILE, victim.name, "evil-0", "evil-2"),
        "boot": Known(boot.boot, victim.boot, prey.earlier.boot, ahead.boot),
        "pool": Known(boot.pool, victim.pool, "evil-old", "evil-new"),
        "capacity": Known(boot.capacity, another.capacity + 100, boot.capacity - 1, boot.capacity + 1),
        "labels": Known("", f"{EVIL}=theirs", f"{EVIL}=old", f"{EVIL}=new"),
        "replaces": Known("", victim.worker, prey.earlier.worker, ahead.worker),
        "token": Known(tokens.issue(boot), tokens.issue(victim), expired(tokens, boot), tokens.issue(ahead)),
        "term": Known(cell.term, cell.term + 7, max(0, cell.term - 1), cell.term + 1),
        "rev": Known(worker.slots_rev, another.slots_rev, max(0, worker.slots_rev - 1), worker.slots_rev + 1),
        "busy": Known([own.tag], [other.tag], *tags_around(own)),
        "prepared": Known([own.tag], [other.tag], *tags_around(own)),
        "home": Known(cell.home, EVIL, earlier_home, f"{EVIL}-home"),
        "live": Known(own.live, other.live, own.live, f"default/{EVIL}"),
        "number": numbers,
        "epoch": numbers,
        "reason": Known(EVIL, f"{EVIL} {victim.worker} crashed", f"{EVIL} old", f"{EVIL} new"),
        "deadline_s": Known(60.0, 0.001, 0.0, 86_400.0),
        "after": Known(mine.acked, theirs.appended, max(0, mine.acked - 1), mine.appended + 1),
        "n": Known(mine.acked, theirs.appended, max(0, mine.acked - 1), mine.appended + 1),
        "mark": Known(mine.acked_mark, theirs.acked_mark or MARK, MARK, MARK),
        "saved": Known(MARK, MARK + b"theirs", MARK + b"old", MARK + b"new"),
    }


def tags_around(own: Target) -> tuple[list[str], list[str]]:
    """Tags of a slot of before and of one to come."""
    epoch = own.record.epoch
    return [slot_tag(own.live, max(1, epoch - 1))], [slot_tag(own.live, epoch + 1)]


def expired(tokens: Tokens, boot: Boot) -> str:
    """A token of this boot that was valid until two days ago."""
    return Tokens(tokens._ring, clock=lambda: time.time() - 3 * 86_400).issue(boot)


def of_other(kind: type[m.Message], prey: Prey, given: Mapping[str, Any], tokens: Tokens) -> dict[str, Any]:
    """The message as the other Worker would send it, as far as values of others are known."""
    known = known_values(prey, tokens)
    return {
        name: known[name].anothers if name in known and name not in ("reason", "saved", "mark") else value
        for name, value in given.items()
    } | {name: MARK for name in ("mark",) if name in given and kind is m.Pull}
