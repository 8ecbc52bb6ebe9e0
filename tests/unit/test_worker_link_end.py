"""Dispatch's end of a Worker's link, with a scripted Worker and store: what is answered, noted, and ends the link."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import aiohttp
import pytest

from dhsched.access.callers import OPEN
from dhsched.dispatch import worker_link
from dhsched.dispatch.context import DispatchContext
from dhsched.dispatch.recovery.silences import Silences
from dhsched.dispatch.worker_link import WorkerLink, WorkerLinks, gave_up
from dhsched.errors import BadToken, StoreRefused, StoreUnavailable
from dhsched.links import messages as m
from dhsched.ownership import outcomes as o
from dhsched.tokens import Boot, Proven
from dhsched.types import SlotState
from tests.harness.linking import eventually

BOOT = Boot("w#1", "boot-1", "w", "gpu", 4)
REGISTER = m.Register("w", "boot-1", "gpu", 4)
TABLE: dict[str, SlotState | None] = {"default/a@1": "starting"}


class Outbox:
    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.bytes: list[int] = []

    def put(self, message: Any, payload_bytes: int = 0) -> None:
        self.sent.append(message)
        self.bytes.append(payload_bytes)


class Socket:
    """A connection whose frames the test puts."""

    def __init__(self) -> None:
        self.frames: asyncio.Queue[aiohttp.WSMessage] = asyncio.Queue()

    async def receive(self, timeout: float | None = None) -> aiohttp.WSMessage:
        return await asyncio.wait_for(self.frames.get(), timeout)

    def send(self, *said: Any) -> None:
        self.frames.put_nowait(aiohttp.WSMessage(aiohttp.WSMsgType.BINARY, m.encode([*said]), None))


class Replica:
    """The links of one replica, its store and what it has told others."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.registered: Any = o.Registered("w#1", "ready", False)
        self.reported: Any = o.Reported(5, "h", 1, 9, "ready", None)
        self.lost = b"0"
        self.reads = 0
        self.refusal = ""
        self.renew = False
        self.exists = True
        self.prepared: list[tuple[str, list[str]]] = []
        self.noted: list[Any] = []
        self.reports: list[dict[str, Any]] = []
        self.silences = Silences()
        for name in ("note_devices", "blame_of_name", "force_out"):
            patch.setattr(worker_link, name, self.noting(name))
        patch.setattr(worker_link, "ask_for_drain", self.noting("drain"))
        patch.setattr(worker_link, "record_departs", self.noting("departs"))
        patch.setattr(worker_link, "bounded", lambda said, **more: said)
        context = cast(DispatchContext, self.context())
        self.links = WorkerLinks(context, self.silences, lambda worker, tags: self.prepared.append((worker, [*tags])))
        self.links.controllers = ["http://c1"]
        self.links.tokens = cast(Any, self)

    def noting(self, name: str) -> Callable[..., Any]:
        async def note(context: Any, *given: Any, **more: Any) -> None:
            self.noted.append((name, *given, *more.values()))

        return note

    def context(self) -> Any:
        def answering(what: Callable[..., Any]) -> Any:
            async def answer(**given: Any) -> Any:
                found = what(**given)
                if isinstance(found, Exception):
                    raise found
                return found

            return answer

        async def exists(worker: str) -> bool:
            return self.exists

        workers = SimpleNamespace(exists=exists, lost=self.read_lost)
        records = SimpleNamespace(workers=workers)
        return SimpleNamespace(
            store=SimpleNamespace(
                register_worker=answering(lambda **given: self.registered),
                report=answering(self.take_report),
                set_worker=answering(lambda **given: o.WorkerSet("ready", True)),
                records=records,
                limits=SimpleNamespace(boots_max=3, boots_window_ms=60_000),
            ),
            records=records,
            events=SimpleNamespace(say=lambda event, **fields: self.events.append((event, fields))),
            ring=SimpleNamespace(refusal_of=lambda key, name: self.refusal),
            settings=SimpleNamespace(worker_ttl_s=4.0),
            fleet=SimpleNamespace(pool_limits={"gpu": {"creates": 2}}),
            replica="d1",
            cell="",
            loop_time=lambda: 77.0,
        )

    def take_report(self, **given: Any) -> Any:
        self.reports.append(given)
        return self.reported

    def read_lost(self, worker: str) -> asyncio.Future[bytes]:
        self.reads += 1
        reading = asyncio.get_running_loop().create_future()
        reading.set_result(self.lost)
        return reading

    # -- in the place of Tokens

    def issue(self, boot: Boot) -> str:
        return f"token of {boot.worker}"

    async def read(self, token: str) -> Proven:
        return Proven(replace(BOOT, worker=token), self.renew)

    # -- links

    def link(self) -> WorkerLink:
        return WorkerLink(self.links, cast(Any, Outbox()), OPEN, "")

    async def hear(self, link: WorkerLink, *said: Any) -> list[Any]:
        """Send a frame to the link; return what it has answered."""
        sent = cast(Outbox, link.outbox).sent
        before = len(sent)
        await link.hear_frame(m.encode([*said]))
        return sent[before:]

    @property
    def said(self) -> list[str]:
        return [event for event, _ in self.events]


@pytest.fixture
def replica(monkeypatch: pytest.MonkeyPatch) -> Replica:
    return Replica(monkeypatch)


async def test_a_registration_is_answered_and_said(replica: Replica) -> None:
    link = replica.link()
    assert await replica.hear(link, REGISTER) == [m.Registered("w#1", "token of w#1", "ready", ["http://c1"])]
    assert replica.said == ["worker_registered"] and replica.noted == [("blame_of_name", "w#1")]
    assert replica.events[0][1] == {"worker": "w#1", "name": "w", "pool": "gpu", "capacity": 4, "replaces": ""}
    replica.events.clear()
    replica.registered = o.Registered("w#1", "ready", True)
    await replica.hear(replica.link(), REGISTER)
    assert replica.events == [], "it was repeated"


async def test_a_registration_says_who_is_replaced_and_that_boots_are_too_many(replica: Replica) -> None:
    replica.registered = o.Registered("w#2", "cordoned", False)
    await replica.hear(replica.link(), m.Register("w", "boot-2", "gpu", 4, "", "w#1"))
    assert replica.said == ["worker_gone", "worker_registered", "crash_loop"]
    assert replica.events[0][1]["worker"] == "w#1" and replica.events[2][1]["window_s"] == 60
    replica.events.clear()
    replica.exists = False
    await replica.hear(replica.link(), m.Register("w", "boot-3", "gpu", 4, "", "w#1"))
    assert replica.said == ["worker_registered", "crash_loop"], "who is replaced was gone before"


async def test_a_boot_of_another_name_and_a_refused_key_are_not_registered(replica: Replica) -> None:
    replica.registered = o.Registered("other#1", "ready", True)
    link = replica.link()
    [problem] = await replica.hear(link, REGISTER)
    assert problem.code == "FORBIDDEN" and link.over and link.boot is None
    replica.registered, replica.refusal = o.Registered("w#1", "ready", False), "the key was revoked"
    link = replica.link()
    assert await replica.hear(link, REGISTER) == [m.Problem("UNAUTHORIZED", "the key was revoked")]
    assert link.over and replica.noted == [("force_out", "w#1", "the key was revoked")] and replica.events == []


async def test_a_link_begins_with_register_or_resume(replica: Replica) -> None:
    for said in (m.Report(0, 0), m.Exit(), m.Drain(), m.DeviceList([]), m.Depart("default/a", 1)):
        link = replica.link()
        [problem] = await replica.hear(link, said)
        assert problem.code == "UNAUTHORIZED" and link.over
    assert replica.noted == [] and replica.reports == []


async def test_a_report_is_answered_with_the_table_and_what_has_changed(replica: Replica) -> None:
    link = replica.link()
    await replica.hear(link, m.Resume("w#1"))
    replica.reported = o.Reported(5, "h", 1, 9, "draining", TABLE, 3)
    [first] = await replica.hear(link, m.Report(1, 8, ["default/a@1"], ["default/b@2"], "h", True))
    assert first == m.Reported(5, 1, 9, "draining", TABLE, ["http://c1"], "", "h", 3)
    assert cast(Outbox, link.outbox).bytes[-1] >= 64
    assert replica.reports[0]["busy"] == ["default/a@1"] and replica.reports[0]["creates"] == 2
    assert (replica.reports[0]["link"], replica.reports[0]["partly"], link.beat) == ("d1", True, 5)
    assert replica.prepared == [("w#1", ["default/b@2"])]
    assert replica.links.lags() == {"w#1": 0}
    replica.reported = o.Reported(6, "h", 1, 9, "ready", None)
    [second] = await replica.hear(link, m.Report(1, 9, lag_ms=70))
    assert replica.links.lags() == {"w#1": 70}
    assert (second.table, second.controllers, second.token) == (None, None, ""), "nothing of this has changed"
    replica.links.controllers = ["http://c2"]
    [third] = await replica.hear(link, m.Report(1, 9))
    assert third.controllers == ["http://c2"] and len(replica.prepared) == 1


async def test_a_token_is_renewed_in_time_and_when_it_is_old(replica: Replica, monkeypatch: pytest.MonkeyPatch) -> None:
    replica.renew = True
    link = replica.link()
    await replica.hear(link, m.Resume("w#1"))
    [first] = await replica.hear(link, m.Report(1, 9))
    [second] = await replica.hear(link, m.Report(1, 9))
    assert (first.token, second.token) == ("token of w#1", "")
    link._renew_at -= worker_link.RENEW_S
    [third] = await replica.hear(link, m.Report(1, 9))
    assert third.token == "token of w#1"


async def test_a_worker_that_was_lost_is_revived_by_its_report(replica: Replica) -> None:
    link = replica.link()
    await replica.hear(link, m.Resume("w#1"))
    replica.lost = b"1"
    await replica.hear(link, m.Report(1, 9), m.Report(1, 9))
    assert replica.events == [("worker_revived", {"worker": "w#1", "beat": 5})] and replica.reads == 1
    link._reported_at -= 2.0
    replica.lost = b""
    await replica.hear(link, m.Report(1, 9))
    assert replica.reads == 2 and len(replica.events) == 1


async def test_a_worker_is_woken_once_between_two_reports(replica: Replica) -> None:
    link = replica.link()
    await replica.hear(link, m.Resume("w#1"))
    sent = cast(Outbox, link.outbox).sent
    for _ in range(3):
        replica.links._on_hint(b"channel", b"w#1")
    replica.links._on_hint(b"channel", b"w#2")
    assert sent == [m.Wake()]
    await replica.hear(link, m.Report(1, 9))
    link.wake()
    assert sent.count(m.Wake()) == 2


async def test_a_report_that_names_too_many_slots_ends_the_link(replica: Replica) -> None:
    link = replica.link()
    await replica.hear(link, m.Resume("w#1"))
    [problem] = await replica.hear(link, m.Report(1, 9, [f"default/{n}@1" for n in range(200)]))
    assert problem.code == "BAD_REQUEST" and "may name at most" in problem.detail
    assert link.over and replica.reports == []


async def test_a_boot_that_is_over_is_told_so_and_its_link_ends(replica: Replica) -> None:
    link = replica.link()
    await replica.hear(link, m.Resume("w#1"))
    replica.reported = o.Gone()
    assert await replica.hear(link, m.Report(1, 9), m.Report(1, 9)) == [m.Gone()] and link.over
    link = replica.link()
    await replica.hear(link, m.Resume("w#1"))
    replica.reported = o.Reported(5, "h", 1, 9, "ready", None)
    assert await replica.hear(link, m.Exit(), m.Report(1, 9)) == [m.Gone()] and link.over
    assert replica.events == [("worker_gone", {"worker": "w#1", "reason": "the Worker exits"})]


async def test_drains_devices_and_departs_are_noted(replica: Replica) -> None:
    link = replica.link()
    await replica.hear(link, m.Resume("w#1"))
    assert await replica.hear(link, m.Drain(30), m.DeviceList([m.Device("gpu0", 1, False)])) == [m.Wake()]
    await replica.hear(link, m.Drain(0), m.Depart("default/a", 1), m.Depart("default/b", 2))
    assert [each[0] for each in replica.noted] == ["drain", "note_devices", "drain", "departs"]
    assert replica.noted[0][2] == 30 and replica.noted[2][2] is None, "0 is no deadline"
    assert [each.live for each in replica.noted[3][2]] == ["default/a", "default/b"], "in one call"


async def test_a_link_is_of_one_boot(replica: Replica) -> None:
    link = replica.link()
    await replica.hear(link, m.Resume("w#1"), m.Resume("w#1"))
    assert not link.over
    [problem] = await replica.hear(link, m.Resume("w#2"))
    assert problem.code == "UNAUTHORIZED" and link.over
    opened_with_a_token = WorkerLink(replica.links, cast(Any, Outbox()), replace(OPEN, worker="w#1"), "")
    [problem] = await replica.hear(opened_with_a_token, m.Resume("w#2"))
    assert problem.code == "UNAUTHORIZED" and opened_with_a_token.boot is None


@pytest.mark.parametrize(
    "error, noted",
    [
        (StoreRefused("no", code="OOM"), True),
        (StoreUnavailable("away", unknown=False), True),
        (StoreUnavailable("away", unknown=True), False),
    ],
)
async def test_a_report_that_the_store_did_not_take_is_noted_and_the_link_goes_on(
    replica: Replica, error: Exception, noted: bool
) -> None:
    link = replica.link()
    await replica.hear(link, m.Resume("w#1"))
    replica.reported = error
    [problem] = await replica.hear(link, m.Report(1, 9))
    assert problem.code.startswith("STORE") and not link.over
    assert replica.silences.refused_at == (77.0 if noted else float("-inf"))


async def test_a_worker_has_one_link_at_a_replica(replica: Replica) -> None:
    first, second = replica.link(), replica.link()
    await replica.hear(first, m.Resume("w#1"), m.Resume("w#1"))
    assert not first.over
    await replica.hear(second, m.Resume("w#1"))
    assert first.over and not second.over
    replica.links.forget(first)
    replica.links.forget(replica.link())
    assert replica.links._links == {"w#1": second}, "an earlier link forgets nothing of the later"
    replica.links.forget(second)
    assert replica.links._links == {}


async def test_a_link_that_is_left_ends_although_its_worker_says_nothing(replica: Replica) -> None:
    link, socket = replica.link(), Socket()
    listening = asyncio.ensure_future(link.listen_until_over(cast(Any, socket)))
    socket.send(m.Resume("w#1"))
    await eventually(lambda: link.boot is not None and link._receiving)
    link.leave()
    await asyncio.wait_for(listening, 60)
    assert link.over


async def test_a_frame_that_is_being_handled_is_handled_to_its_end(replica: Replica) -> None:
    link, socket = replica.link(), Socket()
    gate = asyncio.Event()

    async def slowly(context: Any, worker: str, said: m.DeviceList) -> None:
        await gate.wait()
        replica.noted.append("handled")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker_link, "note_devices", slowly)
        listening = asyncio.ensure_future(link.listen_until_over(cast(Any, socket)))
        socket.send(m.Resume("w#1"))
        socket.send(m.DeviceList([]))
        await eventually(lambda: link.boot is not None and socket.frames.empty() and not link._receiving)
        link.leave()
        gate.set()
        await asyncio.wait_for(listening, 60)
    assert replica.noted == ["handled"]


async def test_a_connection_that_says_nothing_is_closed_with_a_problem(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_link, "HELLO_S", 0.01)
    link = replica.link()
    await asyncio.wait_for(link.listen_until_over(cast(Any, Socket())), 60)
    assert [each.code for each in cast(Outbox, link.outbox).sent] == ["UNAUTHORIZED"]


async def test_workers_whose_key_is_revoked_are_ended_and_the_others_stay(replica: Replica) -> None:
    first, second = replica.link(), replica.link()
    await replica.hear(first, m.Resume("w#1"))
    await replica.hear(second, m.Resume("v#1"))
    replica.links.context.ring = cast(
        Any, SimpleNamespace(refusal_of=lambda key, name: "revoked" if not first.over else "")
    )
    second.leave()
    replica.links._end_refused()
    await eventually(lambda: replica.noted)
    assert first.over and replica.noted == [("force_out", "w#1", "revoked")]
    assert cast(Outbox, second.outbox).sent == []


async def test_who_closed_a_link_after_a_timeout() -> None:
    async def fails(error: Exception) -> None:
        raise error

    done = asyncio.ensure_future(asyncio.sleep(0))
    late = asyncio.ensure_future(fails(TimeoutError()))
    lost = asyncio.ensure_future(fails(ConnectionError()))
    cancelled = asyncio.ensure_future(asyncio.sleep(60))
    cancelled.cancel()
    await asyncio.gather(done, late, lost, cancelled, return_exceptions=True)
    running = asyncio.ensure_future(asyncio.sleep(60))
    quiet = cast(Any, SimpleNamespace(exception=lambda: None))
    assert [gave_up(quiet, each) for each in (done, late, lost, cancelled, running)] == [
        False,
        True,
        False,
        False,
        False,
    ]
    assert gave_up(cast(Any, SimpleNamespace(exception=TimeoutError)), running)
    running.cancel()


def test_problems_name_their_code() -> None:
    assert worker_link.said_of(BadToken("no")).code == "UNAUTHORIZED"
    assert worker_link.said_of(StoreUnavailable("away", unknown=True)).code == "STORE_UNAVAILABLE"
