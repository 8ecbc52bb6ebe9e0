"""A controller's end of PullText, with a scripted Worker and store: who may say what, and what is answered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import aiohttp
import pytest

from dhsched.access.callers import OPEN, Caller
from dhsched.errors import BadToken, StoreUnavailable
from dhsched.infer import pull
from dhsched.infer.context import InferContext
from dhsched.infer.pull import PullText
from dhsched.links import messages as m
from dhsched.ownership import outcomes as o
from dhsched.ownership.journal import Change
from dhsched.ownership.limits import DEFAULT_LIMITS
from dhsched.store.records.lives import LiveDetails
from dhsched.tokens import Boot, Proven, Publishing
from dhsched.types import Generation
from tests.harness.linking import eventually

LIVE, EPOCH = "default/a", 3
BOOT = Boot("w#1", "boot-1", "w", "gpu", 4, "key-1")
PULLED = o.Pulling(7, 4, "anna", "room", b"{}", b'{"voice": 1}', b"state")
MADE = LiveDetails("starting", "anna", "room", b"{}", b"{}", b"state")
M = TypeVar("M")


class Worker:
    """A connection of a Worker. `heard` has what the controller has sent on it."""

    def __init__(self) -> None:
        self.heard: list[m.InferSays] = []
        self.frames: asyncio.Queue[bytes | None] = asyncio.Queue()

    async def send_bytes(self, data: bytes) -> None:
        self.heard += m.read_infer_says(data)

    async def __aiter__(self) -> AsyncIterator[aiohttp.WSMessage]:
        while (frame := await self.frames.get()) is not None:
            yield aiohttp.WSMessage(aiohttp.WSMsgType.BINARY, frame, None)

    async def close(self) -> None:
        self.frames.put_nowait(None)

    def say(self, *said: Any) -> None:
        self.frames.put_nowait(m.encode([*said]))

    async def nth(self, kind: type[M], n: int = 1) -> M:
        def found() -> list[M]:
            return [each for each in self.heard if isinstance(each, kind)]

        await eventually(lambda: len(found()) >= n)
        return found()[n - 1]


class Controller:
    """A controller whose store, tokens and pulls are the test's."""

    def __init__(self) -> None:
        self.pulled: Any = PULLED
        self.made: LiveDetails | None = MADE
        self.store_asked: list[dict[str, Any]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.granted: dict[tuple[object, str, int], Any] = {}
        self.acks: list[tuple[Any, ...]] = []
        self.emits: list[Any] = []
        self.lines: list[Any] = []
        self.devices: list[tuple[str, int, str]] = []
        self.dropped_all: list[object] = []
        self.refusal = ""
        self.room = ""
        self.never_issued = self.hellos_refused = 0
        lives = SimpleNamespace(details=self.details, note_device=self.note_device)
        store = SimpleNamespace(
            pull=self.pull,
            limits=DEFAULT_LIMITS,
            records=SimpleNamespace(lives=lives),
            homes=SimpleNamespace(home="home-1"),
        )
        context = SimpleNamespace(
            cell="",
            store=store,
            pulls=self,
            emits=SimpleNamespace(emit_soon=lambda peer, row: self.emits.append((peer, row))),
            logs=SimpleNamespace(take=lambda bucket, worker, said: self.lines.append((worker, len(self.acks)))),
            service=SimpleNamespace(instance="c1"),
            settings=self,
        )
        self.pull_text = PullText(cast(InferContext, context), cast(Any, self))
        self.serving: list[asyncio.Future[None]] = []

    # -- in the place of the store

    async def pull(self, **given: Any) -> Any:
        self.store_asked.append(given)
        await self.gate.wait()
        if isinstance(self.pulled, Exception):
            raise self.pulled
        return self.pulled

    async def details(self, live: str, worker: str, slot: str) -> LiveDetails | None:
        self.store_asked.append({"live": live, "worker": worker, "slot": slot})
        return self.made

    async def note_device(self, live: str, epoch: int, device: str) -> None:
        self.devices.append((live, epoch, device))

    # -- in the place of the pulls

    def find(self, peer: object, live: str, epoch: int) -> Any:
        return self.granted.get((peer, live, epoch))

    def take(self, granted: Any) -> None:
        self.granted[granted.peer, granted.live, granted.epoch] = granted

    def drop(self, granted: Any) -> None:
        del self.granted[granted.peer, granted.live, granted.epoch]

    def drop_all(self, peer: object) -> None:
        self.dropped_all.append(peer)

    def drained(self, peer: object) -> None: ...

    def ack_soon(self, granted: Any, n: int, mark: bytes, saved: bytes | None, journal: Change | None) -> None:
        self.acks.append((granted.pull_no, n, mark, saved, journal))

    # -- in the place of the tokens

    async def read(self, token: str) -> Proven:
        if token == "forged":
            raise BadToken("the token is forged")
        return Proven(replace(BOOT, worker=token), False)

    def refusal_of(self, boot: Boot) -> str:
        return self.refusal

    def issue_publish(self, publishing: Publishing) -> str:
        return f"{publishing.live} {publishing.generation.epoch} {publishing.key}"

    # -- Workers

    def connect(self, caller: Caller = OPEN) -> Worker:
        worker = Worker()
        self.serving.append(asyncio.ensure_future(self.pull_text.serve_socket(worker, None, caller)))
        return worker

    async def welcomed(self) -> Worker:
        worker = self.connect()
        worker.say(m.Hello("w#1"))
        assert await worker.nth(m.Welcome) == m.Welcome("c1")
        return worker

    async def pulling(self) -> Worker:
        worker = await self.welcomed()
        worker.say(m.Pull(LIVE, EPOCH, 2, b"00000002"))
        await worker.nth(m.Pulling)
        await eventually(lambda: self.granted)
        return worker


@pytest.fixture
async def controller() -> AsyncIterator[Controller]:
    made = Controller()
    yield made
    for each in made.serving:
        each.cancel()
    await asyncio.gather(*made.serving, return_exceptions=True)


async def ended(controller: Controller) -> None:
    await asyncio.wait_for(asyncio.gather(*controller.serving), 60)


async def test_a_pull_is_granted_before_anything_is_released(controller: Controller) -> None:
    worker = await controller.welcomed()
    worker.say(m.Pull(LIVE, EPOCH, 2, b"00000002", True, "gpu0"))
    assert await worker.nth(m.Pulling) == m.Pulling(LIVE, EPOCH, 7, 4, b'{"voice": 1}', b"state")
    await eventually(lambda: controller.devices)
    [granted] = controller.granted.values()
    assert (granted.worker, granted.pull_no, granted.after, granted.mark) == ("w#1", 7, 2, b"00000002")
    assert granted.home == "home-1", "after the runtime's own cursor, not the answer's"
    [asked] = controller.store_asked
    assert (asked["worker"], asked["epoch"], asked["after"], asked["journal"]) == ("w#1", EPOCH, 2, True)
    assert asked["controller"] == "c1" and controller.devices == [(LIVE, EPOCH, "gpu0")]


async def test_a_pull_brings_the_journal_and_where_to_publish(controller: Controller) -> None:
    controller.pulled, controller.room = replace(PULLED, journal_last=9, journal=(b"a", b"b")), "http://room"
    worker = await controller.welcomed()
    worker.say(m.Pull(LIVE, EPOCH, 0))
    said = await worker.nth(m.Pulling)
    assert (said.journal_last, said.journal) == (9, [b"a", b"b"])
    assert (said.room_url, said.publish_token) == ("http://room", f"{LIVE} {EPOCH} key-1")
    assert controller.devices == []


@pytest.mark.parametrize(
    "outcome, said, counted",
    [
        (o.Ended(), m.Ended(LIVE, EPOCH), 0),
        (o.Stale(Generation("v#1", EPOCH + 1)), m.Stale(LIVE, EPOCH), 0),
        (o.Stale(None), m.Stale(LIVE, EPOCH), 0),
        (o.Stale(Generation("v#1", EPOCH - 1)), m.Stale(LIVE, EPOCH), 1),
    ],
)
async def test_a_pull_that_is_not_granted(controller: Controller, outcome: Any, said: Any, counted: int) -> None:
    controller.pulled = outcome
    worker = await controller.welcomed()
    worker.say(m.Pull(LIVE, EPOCH, 0))
    assert await worker.nth(type(said)) == said
    assert controller.granted == {} and controller.never_issued == counted


async def test_a_store_that_is_away_is_a_problem_of_the_pull_and_the_connection_goes_on(controller: Controller) -> None:
    controller.pulled = StoreUnavailable("away", unknown=True)
    worker = await controller.welcomed()
    worker.say(m.Pull(LIVE, EPOCH, 0))
    problem = await worker.nth(m.Problem)
    assert (problem.code, problem.live, problem.epoch) == ("STORE_UNAVAILABLE", LIVE, EPOCH)
    controller.pulled = PULLED
    worker.say(m.Pull(LIVE, EPOCH, 0))
    await worker.nth(m.Pulling)
    controller.pull_text.unavailable(StoreUnavailable("away", unknown=True))
    assert (await worker.nth(m.Problem, 2)).live == ""


async def test_what_a_runtime_is_built_from_is_for_who_has_the_slot(controller: Controller) -> None:
    worker = await controller.welcomed()
    for slot in ("reserved", "starting", "running"):
        controller.made = MADE._replace(slot=slot)
        worker.say(m.Open(LIVE, EPOCH))
    assert await worker.nth(m.Opened, 3) == m.Opened(LIVE, EPOCH, "anna", "room", b"{}", b"{}", b"state")
    assert controller.store_asked[0] == {"live": LIVE, "worker": "w#1", "slot": f"{LIVE}@{EPOCH}"}
    controller.made = MADE._replace(slot="departing")
    worker.say(m.Open(LIVE, EPOCH))
    await worker.nth(m.Stale)
    controller.made = None
    worker.say(m.Open(LIVE, EPOCH))
    await worker.nth(m.Stale, 2)


async def test_acks_and_messages_count_on_the_present_pull_alone(controller: Controller) -> None:
    worker = await controller.pulling()
    change = m.JournalChange(0, 1, [b"entry"])
    worker.say(m.Ack(LIVE, EPOCH, 3, b"state", b"00000003", change), m.Ack(LIVE, EPOCH, 4))
    worker.say(m.Ack(LIVE, EPOCH - 1, 9), m.Ack("default/b", EPOCH, 9), m.Emit(LIVE, EPOCH - 1, 1, "old", b"{}"))
    worker.say(m.Emit(LIVE, EPOCH, 1, "mood", b"{}", 0))
    await eventually(lambda: controller.emits)
    assert controller.acks == [(7, 3, b"00000003", b"state", Change(0, 1, (b"entry",))), (7, 4, b"", None, None)]
    [(_, row)] = controller.emits
    assert (row.live, row.worker, row.epoch, row.n, row.name) == (LIVE, "w#1", EPOCH, 1, "mood")


async def test_messages_wait_while_too_many_are_on_their_way(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pull, "EMITS_MAX", 1)
    worker = await controller.pulling()
    worker.say(*(m.Emit(LIVE, EPOCH, n, "mood", b"{}", 0) for n in (1, 2)))
    await eventually(lambda: controller.emits)
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(controller.emits) == 1
    controller.emits[0][0].emit_answered()
    await eventually(lambda: len(controller.emits) == 2)


async def test_a_runtime_that_is_gone_leaves_its_pull(controller: Controller) -> None:
    worker = await controller.pulling()
    worker.say(m.Leave("default/b", EPOCH), m.Log(LIVE, EPOCH, [m.LogLine("info", b"last words")]))
    await eventually(lambda: controller.lines)
    assert controller.granted and controller.lines[0][0] == "w#1"
    worker.say(m.Leave(LIVE, EPOCH))
    await eventually(lambda: not controller.granted)


@pytest.mark.parametrize("said", [m.Pull(LIVE, EPOCH, 0), m.Open(LIVE, EPOCH), m.Emit(LIVE, EPOCH, 1, "a", b"{}")])
async def test_a_connection_begins_with_hello(controller: Controller, said: Any) -> None:
    worker = controller.connect()
    worker.say(said)
    assert (await worker.nth(m.Problem)).code == "UNAUTHORIZED"
    await ended(controller)
    assert controller.store_asked == []


@pytest.mark.parametrize("tokens", [("forged",), ("w#1", "w#2")])
async def test_a_hello_of_somebody_else_ends_the_connection(controller: Controller, tokens: tuple[str, ...]) -> None:
    worker = controller.connect()
    worker.say(*map(m.Hello, tokens))
    assert (await worker.nth(m.Problem)).code == "UNAUTHORIZED"
    await ended(controller)
    assert controller.hellos_refused == len(tokens) - 1


async def test_a_hello_is_of_the_boot_that_has_opened_the_connection(controller: Controller) -> None:
    worker = controller.connect(replace(OPEN, worker="w#1", boot="boot-1"))
    worker.say(m.Hello("w#1"), m.Hello("w#1"))
    await worker.nth(m.Welcome, 2)
    other = controller.connect(replace(OPEN, worker="w#1", boot="boot-0"))
    other.say(m.Hello("w#1"))
    assert (await other.nth(m.Problem)).code == "UNAUTHORIZED" and controller.hellos_refused == 1


async def test_a_silent_connection_is_closed_and_one_that_said_hello_is_not(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pull, "HELLO_S", 0.05)
    greeted = await controller.welcomed()
    silent = controller.connect()
    assert (await silent.nth(m.Problem)).detail == "no hello within 0.05 s"
    greeted.say(m.Open(LIVE, EPOCH))
    await greeted.nth(m.Opened)


async def test_a_worker_whose_key_is_revoked_is_told_and_its_connection_ends(controller: Controller) -> None:
    worker = await controller.pulling()
    controller.pull_text.end_refused()
    assert controller.dropped_all == []
    controller.refusal = "the key was revoked"
    controller.pull_text.end_refused()
    assert await worker.nth(m.Problem) == m.Problem("UNAUTHORIZED", "the key was revoked")
    await ended(controller)
    assert controller.pull_text.peers == set() and len(controller.dropped_all) == 2


async def test_a_connection_that_ended_has_no_pull_although_its_grant_comes_later(controller: Controller) -> None:
    worker = await controller.welcomed()
    controller.gate.clear()
    worker.say(m.Pull(LIVE, EPOCH, 0))
    await eventually(lambda: controller.store_asked)
    controller.refusal = "revoked"
    controller.pull_text.end_refused()
    controller.gate.set()
    await ended(controller)
    assert controller.granted == {}


async def test_no_more_requests_of_one_worker_are_under_way_than_allowed(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pull, "ASKED_MAX", 2)
    controller.gate.clear()
    worker = await controller.welcomed()
    worker.say(*(m.Pull(f"default/{n}", EPOCH, 0) for n in range(4)))
    await eventually(lambda: len(controller.store_asked) == 2)
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(controller.store_asked) == 2
    controller.gate.set()
    await worker.nth(m.Pulling, 4)


async def test_a_long_frame_lets_others_be_served_in_between(controller: Controller) -> None:
    """More than a turn of messages in one frame, while another Worker says a single one."""
    many, other = await controller.pulling(), await controller.welcomed()
    many.say(*(m.Ack(LIVE, EPOCH, n) for n in range(200)))
    other.say(m.Log(LIVE, EPOCH, []))
    await eventually(lambda: controller.lines)
    assert 0 < controller.lines[0][1] < 200, "so many acks were handled before"
    await eventually(lambda: len(controller.acks) == 200)


async def test_a_stopping_controller_sends_its_workers_elsewhere(controller: Controller) -> None:
    worker = await controller.welcomed()
    controller.pull_text.goodbye()
    await worker.nth(m.Goodbye)


async def test_an_ack_with_a_mark_that_is_none_ends_the_connection(controller: Controller) -> None:
    worker = await controller.pulling()
    worker.say(m.Ack(LIVE, EPOCH, 3, None, b"x"))
    assert (await worker.nth(m.Problem)).code == "BAD_REQUEST"
    await ended(controller)
    assert controller.acks == []
