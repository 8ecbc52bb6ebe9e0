"""The Worker's side of PullText on scripted controllers: which messages count, what is repeated, who serves a live."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar

import aiohttp
import pytest

from dhsched.links import messages as m
from dhsched.ownership import items
from dhsched.ownership.journal import Change
from dhsched.types import Generation
from dhsched.worker import pull_client
from dhsched.worker.inbox import SessionInbox
from dhsched.worker.pull_client import Over, PullClient
from dhsched.worker.session import Publish, Session
from tests.harness.linking import eventually

LIVE, EPOCH = "default/a", 3
ONE, TWO = "http://one", "http://two"
M = TypeVar("M")


class Controller:
    """A controller that sends what the test tells it to. `said` has what the Worker has sent to it."""

    def __init__(self) -> None:
        self.said: list[m.PullSays] = []
        self.frames: asyncio.Queue[bytes | None] = asyncio.Queue()

    async def send_bytes(self, data: bytes) -> None:
        self.said += m.read_pull_says(data)

    async def __aiter__(self) -> AsyncIterator[aiohttp.WSMessage]:
        while (frame := await self.frames.get()) is not None:
            yield aiohttp.WSMessage(aiohttp.WSMsgType.BINARY, frame, None)

    def tell(self, *said: Any) -> None:
        self.frames.put_nowait(m.encode([*said]))

    def hang_up(self) -> None:
        self.frames.put_nowait(None)

    def all(self, kind: type[M]) -> list[M]:
        return [each for each in self.said if isinstance(each, kind)]

    async def nth(self, kind: type[M], n: int = 1) -> M:
        """Return the n-th message of a kind, as soon as it is here."""
        await eventually(lambda: len(self.all(kind)) >= n)
        return self.all(kind)[n - 1]


class Worker:
    """A pull client, and the connections that it has made, each a controller of its own."""

    def __init__(self) -> None:
        self.dialled: dict[str, list[Controller]] = {}
        self.over: list[Session] = []
        self.dispatch_answers_s = 0.0
        self.client = PullClient(self.dial, self.over.append, lambda: self.dispatch_answers_s, log_lines_per_s=1000.0)
        self.client.token = "token-of-the-boot"

    @asynccontextmanager
    async def dial(self, url: str) -> AsyncIterator[Controller]:
        controller = Controller()
        self.dialled.setdefault(url, []).append(controller)
        yield controller

    async def connected(self, *urls: str) -> list[Controller]:
        """Connect to controllers, which welcome the Worker."""
        self.client.use(urls)
        return [await self.welcomed(url) for url in urls]

    async def welcomed(self, url: str, n: int = 1) -> Controller:
        await eventually(lambda: len(self.dialled.get(url, ())) >= n)
        controller = self.dialled[url][n - 1]
        before = self.client.connected
        controller.tell(m.Welcome("c"))
        await eventually(lambda: self.client.connected > before)
        return controller

    def session(self, live: str = LIVE) -> SessionInbox:
        return SessionInbox(Session(live, Generation("w#1", EPOCH), self.client, may_claim=True))


@pytest.fixture
async def worker(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Worker]:
    monkeypatch.setattr(pull_client, "BACKOFF_FIRST_S", 0.01)
    monkeypatch.setattr(pull_client, "RETRY_S", 0.01)
    worker = Worker()
    yield worker
    await worker.client.close()


def made(live: str = LIVE) -> m.Opened:
    return m.Opened(live, EPOCH, "anna", "room", b"{}", b"{}", b"")


def granted(pull_no: int, after: int = 0, **more: Any) -> m.Pulling:
    return m.Pulling(LIVE, EPOCH, pull_no, after, b"{}", b"", **more)


def released(pull_no: int, first: int, *texts: str) -> m.Items:
    stored = [items.stored("text", text.encode(), False, b"%08x" % n) for n, text in enumerate(texts, first)]
    return m.Items(LIVE, EPOCH, pull_no, first, stored)


async def pulling(worker: Worker, controller: Controller, pull_no: int = 1) -> SessionInbox:
    """A session whose first pull was granted."""
    inbox = worker.session()
    opening = worker.client.open(inbox)
    await controller.nth(m.Open)
    controller.tell(made())
    inbox.made_of(await opening)
    worker.client.claim(inbox.session)
    await controller.nth(m.Pull)
    controller.tell(granted(pull_no))
    await eventually(lambda: inbox.begun)
    return inbox


def queued(inbox: SessionInbox) -> list[str]:
    return [item.text for item in inbox.session._queue or ()]


async def test_a_runtime_is_built_before_its_generation_is_claimed(worker: Worker) -> None:
    [controller] = await worker.connected(ONE)
    assert (await controller.nth(m.Hello)).token == "token-of-the-boot"
    inbox = worker.session()
    opening = worker.client.open(inbox)
    assert await controller.nth(m.Open) == m.Open(LIVE, EPOCH)
    controller.tell(made())
    assert (await opening).digital_id == "anna"
    assert controller.all(m.Pull) == []
    worker.client.claim(inbox.session)
    assert await controller.nth(m.Pull) == m.Pull(LIVE, EPOCH, 0)


async def test_a_runtime_that_is_not_built_yet_claims_nothing_on_a_new_connection(worker: Worker) -> None:
    [controller] = await worker.connected(ONE)
    inbox = worker.session()
    opening = worker.client.open(inbox)
    await controller.nth(m.Open)
    controller.tell(made())
    await opening
    controller.hang_up()
    again = await worker.welcomed(ONE, 2)
    worker.client.open(worker.session("default/b"))
    await again.nth(m.Open)
    assert again.all(m.Open) == [m.Open("default/b", EPOCH)] and again.all(m.Pull) == []


def same(inbox: SessionInbox, publish: Publish) -> bool:
    return inbox.session.publish == publish


async def test_where_to_publish_comes_with_each_grant(worker: Worker) -> None:
    [controller] = await worker.connected(ONE)
    inbox = await pulling(worker, controller)
    assert inbox.session.publish is None
    for pull_no, token in ((2, "t-2"), (3, "t-3")):
        controller.tell(granted(pull_no, room_url="http://room", publish_token=token))
        await eventually(partial(same, inbox, Publish("http://room", token)))
    controller.tell(granted(4))
    await eventually(lambda: inbox.session.publish is None)


async def test_items_of_an_older_pull_are_ignored(worker: Worker) -> None:
    [controller] = await worker.connected(ONE)
    inbox = await pulling(worker, controller, pull_no=5)
    controller.tell(released(4, 1, "of the older pull"), released(5, 1, "of this pull"))
    await eventually(lambda: inbox.accepted[0])
    assert queued(inbox) == ["of this pull"] and inbox.accepted == (1, b"00000001")


async def test_an_older_pull_does_not_replace_a_newer_one(worker: Worker) -> None:
    [controller] = await worker.connected(ONE)
    inbox = await pulling(worker, controller, pull_no=5)
    controller.tell(granted(4), granted(5, after=7), released(4, 1, "of the older pull"), released(5, 1, "a"))
    await eventually(lambda: inbox.accepted[0])
    assert queued(inbox) == ["a"], "neither an older grant nor a repetition changes the pull or where input begins"


async def test_nothing_counts_between_a_pull_and_its_answer(worker: Worker) -> None:
    [controller] = await worker.connected(ONE)
    inbox = await pulling(worker, controller, pull_no=5)
    controller.tell(released(5, 2, "not the next one"), released(5, 1, "on the old pull"))
    assert await controller.nth(m.Pull, 2) == m.Pull(LIVE, EPOCH, 0), "what does not follow makes it pull again"
    controller.tell(granted(6), released(6, 1, "on the new pull"))
    await eventually(lambda: inbox.accepted[0])
    assert queued(inbox) == ["on the new pull"]


async def test_a_controller_that_says_goodbye_is_left_and_its_connection_ends(worker: Worker) -> None:
    [one] = await worker.connected(ONE)
    inbox = await pulling(worker, one)
    [two] = await worker.connected(TWO)
    one.tell(m.Goodbye())
    await two.nth(m.Pull)
    await eventually(lambda: worker.client.connected == 1)
    two.tell(granted(2), released(2, 1, "b"))
    await eventually(lambda: inbox.accepted[0])
    assert queued(inbox) == ["b"]


async def test_a_live_goes_on_elsewhere_from_the_last_item_that_arrived(worker: Worker) -> None:
    [one] = await worker.connected(ONE)
    inbox = await pulling(worker, one)
    one.tell(released(1, 1, "a", "b"))
    await eventually(lambda: inbox.accepted[0] == 2)
    [two] = await worker.connected(TWO)
    one.hang_up()
    assert await two.nth(m.Pull) == m.Pull(LIVE, EPOCH, 2, b"00000002")
    two.tell(granted(2, after=1), released(2, 3, "c"))
    await eventually(lambda: inbox.accepted[0] == 3)
    assert queued(inbox) == ["a", "b", "c"], "a grant in between does not begin input anew"


async def test_a_lost_connection_is_made_again_and_the_live_waits_for_it(worker: Worker) -> None:
    [controller] = await worker.connected(ONE)
    await pulling(worker, controller)
    controller.hang_up()
    again = await worker.welcomed(ONE, 2)
    assert await again.nth(m.Pull) == m.Pull(LIVE, EPOCH, 0)


async def test_the_last_ack_is_repeated_on_the_next_pull(worker: Worker) -> None:
    [one] = await worker.connected(ONE)
    inbox = await pulling(worker, one)
    one.tell(released(1, 1, "a", "b"))
    await eventually(lambda: inbox.accepted[0] == 2)
    session = inbox.session
    worker.client.ack(session, 1, b"00000001", b"state", None)
    worker.client.ack(session, 2, b"00000002", None, Change(0, 1, (b"entry",)))
    assert await one.nth(m.Ack) == m.Ack(LIVE, EPOCH, 1, b"state", b"00000001")
    assert await one.nth(m.Ack, 2) == m.Ack(LIVE, EPOCH, 2, None, b"00000002", m.JournalChange(0, 1, [b"entry"]))
    one.hang_up()
    again = await worker.welcomed(ONE, 2)
    await again.nth(m.Pull)
    assert again.all(m.Ack) == [], "nothing is acked before the pull is granted"
    again.tell(granted(2, after=2))
    assert await again.nth(m.Ack) == m.Ack(LIVE, EPOCH, 2, b"state", b"00000002"), "with the state that was saved last"


async def test_an_ack_between_two_pulls_waits_for_the_second(worker: Worker) -> None:
    [controller] = await worker.connected(ONE)
    inbox = await pulling(worker, controller)
    controller.tell(released(1, 1, "a"), released(1, 9, "not the next one"))
    await controller.nth(m.Pull, 2)
    worker.client.ack(inbox.session, 1, b"00000001", None, None)
    controller.tell(granted(2))
    assert await controller.nth(m.Ack) == m.Ack(LIVE, EPOCH, 1, None, b"00000001")
    assert len(controller.all(m.Ack)) == 1


async def test_messages_that_are_not_stored_are_sent_again_on_the_next_pull(worker: Worker) -> None:
    [controller] = await worker.connected(ONE)
    inbox = await pulling(worker, controller)
    for name in ("a", "b", "c"):
        inbox.session.emit(name)
    await controller.nth(m.Emit, 3)
    controller.tell(m.Emitted(LIVE, EPOCH, 1))
    await eventually(lambda: len(inbox.unstored) == 2)
    inbox.session.emit("d")
    await controller.nth(m.Emit, 4)
    assert [each.n for each in controller.all(m.Emit)] == [1, 2, 3, 4], "an answer asks for nothing"
    controller.hang_up()
    again = await worker.welcomed(ONE, 2)
    await again.nth(m.Pull)
    inbox.session.emit("e")
    again.tell(granted(2))
    await again.nth(m.Emit, 4)
    assert [(each.n, each.name, each.told) for each in again.all(m.Emit)] == [
        *((2, "b", 1), (3, "c", 1)),
        *((4, "d", 1), (5, "e", 1)),
    ]
    again.tell(m.Emitted(LIVE, EPOCH, 3, again=True))
    await again.nth(m.Emit, 6)
    assert [each.n for each in again.all(m.Emit)[4:]] == [4, 5], "what the store does not have is sent once more"


@pytest.mark.parametrize("said", [m.Stale(LIVE, EPOCH), m.Ended(LIVE, EPOCH)])
async def test_a_generation_that_is_over_is_stopped_and_pulls_no_more(worker: Worker, said: Any) -> None:
    [controller] = await worker.connected(ONE)
    inbox = await pulling(worker, controller)
    inbox.session.emit("early")
    waiting = asyncio.ensure_future(inbox.session.emits_stored())
    controller.tell(m.Stale(LIVE, EPOCH - 1), m.Stale("default/other", EPOCH), said)
    await eventually(lambda: worker.over)
    assert worker.over == [inbox.session] and inbox.unstored == ()
    await asyncio.wait_for(waiting, 60)
    inbox.session.emit("later")
    assert inbox.unstored == (), "nobody waits for a message that cannot be stored"
    controller.hang_up()
    again = await worker.welcomed(ONE, 2)
    other = worker.session("default/other")
    opening = worker.client.open(other)
    await again.nth(m.Open)
    assert again.all(m.Pull) == [] and not opening.done()


async def test_a_generation_that_is_over_before_it_began_has_no_runtime(worker: Worker) -> None:
    [controller] = await worker.connected(ONE)
    opening = worker.client.open(worker.session())
    await controller.nth(m.Open)
    controller.tell(m.Stale(LIVE, EPOCH))
    with pytest.raises(Over):
        await asyncio.wait_for(opening, 60)


async def test_a_session_that_left_is_forgotten(worker: Worker) -> None:
    [controller] = await worker.connected(ONE)
    inbox = await pulling(worker, controller)
    never = worker.session("default/b")
    opening = worker.client.open(never)
    worker.client.leave(inbox.session)
    worker.client.leave(never.session)
    assert (await controller.nth(m.Leave)) == m.Leave(LIVE, EPOCH) and opening.cancelled()
    worker.client.ack(inbox.session, 1, b"", None, None)
    worker.client.claim(inbox.session)
    controller.tell(m.Stale(LIVE, EPOCH))
    controller.hang_up()
    again = await worker.welcomed(ONE, 2)
    worker.client.open(worker.session("default/c"))
    await again.nth(m.Open)
    assert [type(each).__name__ for each in again.said] == ["Hello", "Open"] and worker.over == []
    assert controller.all(m.Ack) == [] and len(controller.all(m.Pull)) == 1


async def test_nothing_is_asked_for_a_session_that_left_when_its_connection_ends(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    inbox, [one, two] = await cut_off(monkeypatch, worker, ONE, TWO)
    worker.client.leave(inbox.session)
    await one.nth(m.Leave)
    one.hang_up()
    await eventually(lambda: worker.client.connected == 1)
    worker.client.open(worker.session("default/b"))
    await two.nth(m.Open)
    assert two.all(m.Pull) == [] and len(two.all(m.Open)) == 1


async def test_log_lines_are_sent_while_the_session_is_there(worker: Worker) -> None:
    [controller] = await worker.connected(ONE)
    inbox = await pulling(worker, controller)
    worker.client.log(worker.session("default/b").session, "info", "of nobody")
    worker.client.log(inbox.session, "warning", "of the runtime")
    assert await controller.nth(m.Log) == m.Log(LIVE, EPOCH, [m.LogLine("warning", b"of the runtime")])
    worker.client.log(inbox.session, "info", "last words")
    worker.client.leave(inbox.session)
    assert (await controller.nth(m.Log, 2)).lines[0].text == b"last words"
    assert [type(each) for each in controller.said[-2:]] == [m.Log, m.Leave]


async def test_a_refused_pull_is_repeated_and_problems_of_others_change_nothing(worker: Worker) -> None:
    [controller] = await worker.connected(ONE)
    await pulling(worker, controller)
    controller.tell(m.Problem("BUSY", "of the link"), m.Problem("BUSY", "of another generation", LIVE, EPOCH + 1))
    controller.tell(m.Problem("BUSY", "later", LIVE, EPOCH))
    assert await controller.nth(m.Pull, 2) == m.Pull(LIVE, EPOCH, 0)
    controller.tell(granted(2))
    controller.tell(m.Problem("BUSY", "later", LIVE, EPOCH))
    await controller.nth(m.Pull, 3)
    assert len(controller.all(m.Pull)) == 3


async def cut_off(monkeypatch: pytest.MonkeyPatch, worker: Worker, *urls: str) -> tuple[SessionInbox, list[Controller]]:
    """A session on the first of the controllers, which answers from now on that it does not reach the store."""
    monkeypatch.setattr(pull_client, "weight", lambda live, url: b"1" if url == ONE else b"0")
    controllers = await worker.connected(*urls)
    return await pulling(worker, controllers[0]), controllers


UNAVAILABLE = m.Problem("STORE_UNAVAILABLE", "the store does not answer", LIVE, EPOCH)


async def test_a_controller_that_alone_is_cut_off_is_left(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pull_client, "UNAVAILABLE_S", 0.0)
    inbox, [one, two] = await cut_off(monkeypatch, worker, ONE, TWO)
    one.tell(UNAVAILABLE)
    await two.nth(m.Pull)
    one.tell(granted(9), released(1, 1, "of the one that was left"))
    two.tell(granted(2))
    await eventually(lambda: one.frames.empty() and two.frames.empty())
    one.tell(released(2, 1, "of the one that was left"))
    await eventually(lambda: one.frames.empty())
    two.tell(released(2, 1, "b"))
    await eventually(lambda: inbox.accepted[0])
    assert queued(inbox) == ["b"]
    worker.client.open(worker.session("default/b"))
    await two.nth(m.Open)
    assert len(one.all(m.Open)) == 1, "a controller that was left gets no lives for a while"


async def test_a_controller_is_not_left_while_dispatch_is_cut_off_too(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, [one, two] = await cut_off(monkeypatch, worker, ONE, TWO)
    worker.dispatch_answers_s = 1.9
    monkeypatch.setattr(pull_client.Connection, "unavailable_for_s", lambda self, now: 100.0)
    one.tell(UNAVAILABLE)
    await one.nth(m.Pull, 2)
    assert two.all(m.Pull) == []
    worker.dispatch_answers_s = 2.0
    one.tell(UNAVAILABLE)
    await two.nth(m.Pull)


async def test_the_only_controller_is_never_left(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pull_client, "UNAVAILABLE_S", 0.0)
    _, [one] = await cut_off(monkeypatch, worker, ONE)
    one.tell(UNAVAILABLE)
    await one.nth(m.Pull, 2)


def test_a_controller_is_unavailable_since_the_first_of_answers_that_follow_each_other() -> None:
    connection = pull_client.Connection(ONE, m)  # type: ignore[arg-type]
    assert connection.unavailable_for_s(100.0) == 0
    assert connection.unavailable_for_s(103.0) == 3
    assert connection.unavailable_for_s(113.0) == 13
    assert connection.unavailable_for_s(123.5) == 0, "it was idle, and may have recovered meanwhile"
    assert connection.unavailable_for_s(124.0) == 0.5
    connection.serves()
    assert connection.unavailable_for_s(125.0) == 0


async def test_controllers_that_are_not_listed_any_more_are_used_to_their_end(worker: Worker) -> None:
    [one] = await worker.connected(ONE)
    await pulling(worker, one)
    worker.client.use([])
    worker.client.use([TWO])
    two = await worker.welcomed(TWO)
    assert worker.client.connected == 2 and two.all(m.Pull) == []
    one.hang_up()
    await two.nth(m.Pull)
    await eventually(lambda: set(worker.client._keepers) == {TWO})
    assert len(worker.dialled[ONE]) == 1, "it is not dialled again"
