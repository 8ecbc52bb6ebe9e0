"""The Worker's link to Dispatch on scripted replicas: what is sent when, which replica is left, what ends a boot."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from dhsched.errors import KeyRefused
from dhsched.links import messages as m
from dhsched.types import SlotState
from dhsched.worker import dispatch_link
from tests.harness.linking import eventually
from tests.harness.scripted_dispatch import REGISTER, refused, reported, scripted_links


@pytest.fixture
async def links(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Any]:
    async with scripted_links(monkeypatch) as made:
        yield made


async def test_a_boot_registers_once_and_resumes_with_its_token_elsewhere(links: Any) -> None:
    worker = links()
    first = await worker.serving()
    assert first.url == "http://d1/v1/workers/link" and first.all(m.Register) == [REGISTER] and first.headers == {}
    assert worker.registered == [("w#1", "token-1")] and worker.controllers == [["http://c1"]]
    first.tell(reported(token="token-2"))
    await eventually(lambda: worker.registered[1:] == [("w#1", "token-2")])
    first.frames.put_nowait(None)
    second = await worker.nth(2)
    assert second.url == "http://d2/v1/workers/link", "the other replica is next"
    assert second.headers == {"Authorization": "Bearer token-2"}
    assert await second.nth(m.Resume) == m.Resume("token-2") and second.all(m.Register) == []
    await second.nth(m.Report)


async def test_one_report_is_in_flight_and_requests_meanwhile_share_the_next(links: Any) -> None:
    worker = links()
    worker.link.report_soon()
    replica = await worker.serving()
    for _ in range(3):
        worker.link.report_soon()
    replica.tell(m.Wake())
    await eventually(replica.frames.empty)
    assert len(replica.all(m.Report)) == 1
    replica.tell(reported())
    await replica.nth(m.Report, 2)
    replica.tell(reported())
    await eventually(lambda: worker.link._asked_at is None)
    assert len(replica.all(m.Report)) == 2, "nobody has asked for a third"
    replica.tell(m.Departed("default/a", 1))
    await replica.nth(m.Report, 3)


async def test_an_answer_brings_the_table_the_mode_and_new_controllers(links: Any) -> None:
    worker = links()
    replica = await worker.serving()
    table: dict[str, SlotState | None] = {"default/a@1": "starting", "default/b@2": None}
    replica.tell(m.Reported(7, 2, 9, "draining", table, ["http://c2"], home="h", base=8))
    await eventually(lambda: worker.agent.tables)
    assert worker.agent.tables == [{"home": "h", "term": 2, "rev": 9, "table": table, "base": 8}]
    assert worker.link.mode == "draining" and worker.controllers == [["http://c1"], ["http://c2"]]
    assert worker.agent.acts == 0 and worker.registered == [("w#1", "token-1")]
    worker.link.report_soon()
    replica.tell(reported())
    await eventually(lambda: worker.agent.acts)
    assert len(worker.agent.tables) == 1 and len(worker.controllers) == 2, "nothing of this was in the answer"


async def test_departs_and_drains_go_out_at_once(links: Any) -> None:
    worker = links()
    worker.link.depart("default/a", 1)
    replica = await worker.serving()
    worker.link.depart("default/b", 2, "crashed")
    assert await replica.nth(m.Depart) == m.Depart("default/b", 2, "crashed")
    worker.link.drain()
    assert await replica.nth(m.Drain) == m.Drain(0.0), "without a deadline"
    worker.link.drain(1e9)
    assert await replica.nth(m.Drain, 2) == m.Drain(86_400.0)
    worker.link.drain(60)
    assert 30 < (await replica.nth(m.Drain, 3)).deadline_s <= 60


async def test_a_drain_and_an_exit_are_repeated_on_the_next_connection(links: Any) -> None:
    worker = links()
    worker.link.drain(60)
    first = await worker.serving()
    assert len(first.all(m.Drain)) == 1 and first.all(m.Exit) == []
    worker.link.exit()
    await first.nth(m.Exit)
    first.frames.put_nowait(None)
    second = await worker.nth(2)
    assert (await second.nth(m.Drain)).deadline_s <= 60 and await second.nth(m.Exit)
    second.tell(m.Gone())
    await asyncio.wait_for(worker.running, 60)
    assert worker.boot.exited.is_set() and not worker.boot.gone.is_set(), "it has asked for it"


async def test_devices_are_told_on_each_connection_and_when_they_change(links: Any) -> None:
    device = m.Device("gpu0", 0, False)
    worker = links(devices=[device])
    replica = await worker.serving()
    assert replica.all(m.DeviceList) == [m.DeviceList([device])]
    worker.link.tell_devices()
    replica.tell(reported())
    assert await replica.nth(m.DeviceList, 2)
    await replica.nth(m.Report, 2)
    replica.tell(reported())
    worker.link.report_soon()
    await replica.nth(m.Report, 3)
    assert len(replica.all(m.DeviceList)) == 2


async def test_a_worker_without_named_devices_tells_of_none(links: Any) -> None:
    worker = links()
    replica = await worker.serving()
    worker.link.tell_devices()
    replica.tell(reported(), m.Wake())
    await replica.nth(m.Report, 2)
    assert replica.all(m.DeviceList) == []


async def test_a_boot_that_is_gone_ends_the_link_and_says_goodbye_to_nobody_else(links: Any) -> None:
    worker = links()
    replica = await worker.serving()
    replica.tell(m.Gone(), reported())
    await asyncio.wait_for(worker.running, 60)
    assert worker.boot.gone.is_set() and replica.closed and len(worker.made) == 1 and worker.agent.acts == 0


async def test_a_stopping_replica_is_left_at_once(links: Any) -> None:
    worker = links()
    first = await worker.serving()
    first.tell(m.Goodbye(), reported())
    second = await worker.nth(2)
    assert second.url.startswith("http://d2") and first.closed and worker.agent.acts == 0
    assert not worker.boot.gone.is_set()


async def test_a_replica_that_does_not_answer_is_left(links: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch_link, "REPORT_S", 0.01)
    monkeypatch.setattr(dispatch_link, "SILENCE_MAX_S", 0.05)
    worker = links()
    first = await worker.serving()
    second = await worker.nth(2)
    await eventually(lambda: first.closed)
    third = await worker.nth(3)
    assert second.all(m.Resume) and third.url == first.url
    assert not worker.boot.gone.is_set()


async def test_reports_go_on_every_period(links: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch_link, "REPORT_S", 0.01)
    monkeypatch.setattr(dispatch_link, "SILENCE_MAX_S", 60.0)
    worker = links()
    replica = await worker.serving()
    for n in (2, 3, 4):
        replica.tell(reported())
        await replica.nth(m.Report, n)
    assert len(worker.made) == 1


async def test_a_loop_that_was_late_is_reported(links: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch_link, "REPORT_S", 0.01)
    monkeypatch.setattr(dispatch_link, "SILENCE_MAX_S", 60.0)
    worker = links()
    replica = await worker.serving()
    time.sleep(0.3)  # noqa: ASYNC251
    for n in (2, 3, 4):
        replica.tell(reported())
        await replica.nth(m.Report, n)
    assert replica.all(m.Report)[-1].lag_ms >= 200, "the worst of the last seconds"


async def test_how_long_reports_have_been_answered(links: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    worker = links()
    replica = await worker.serving()
    assert worker.link.answered_s == 0 and worker.link.urls == ("http://d1", "http://d2")
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now)
    worker.link._reported(reported())
    now += 1
    assert worker.link.answered_s == 1 and worker.link.silent_s == 1
    worker.link._reported(reported())
    now += 2
    assert worker.link.answered_s == 3 and worker.link.silent_s == 2
    now += 0.5
    assert worker.link.answered_s == 0, "the answers have a gap"
    worker.link._reported(reported())
    assert worker.link.answered_s == 0
    now += 1
    assert worker.link.answered_s == 1
    worker.link._problem(m.Problem("STORE_UNAVAILABLE", "away"))
    assert worker.link.answered_s == 0 and worker.link._asked_at is None
    monkeypatch.undo()
    assert replica.closed is False


async def test_a_token_that_is_not_known_any_more_ends_the_boot(links: Any) -> None:
    worker = links()
    replica = await worker.serving()
    replica.tell(m.Problem("STORE_UNAVAILABLE", "away"))
    await eventually(replica.frames.empty)
    assert not worker.boot.gone.is_set(), "the store is away for a while"
    replica.tell(m.Problem("UNAUTHORIZED", "the key was revoked"))
    await asyncio.wait_for(worker.running, 60)
    assert worker.boot.gone.is_set() and not worker.boot.exited.is_set()


async def test_a_registered_boot_whose_handshake_is_refused_is_gone(
    links: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch_link, "REFUSED_MAX_S", 0.0)
    worker = links()
    replica = await worker.serving()
    worker.refuses = [refused(503), refused(403), refused(401)]
    replica.frames.put_nowait(None)
    await asyncio.wait_for(worker.running, 60)
    assert worker.boot.gone.is_set() and worker.refuses == [], "only 401 says that the token is not known"


@pytest.mark.parametrize(
    "status, reason", [(401, "requires an API key, and this Worker has none"), (403, "answered 403: add the name")]
)
async def test_a_worker_that_every_replica_refuses_exits_after_a_while(
    links: Any, monkeypatch: pytest.MonkeyPatch, status: int, reason: str
) -> None:
    monkeypatch.setattr(dispatch_link, "REFUSED_MAX_S", 0.02)
    worker = links()
    worker.refuses = [refused(status) for _ in range(10_000)]
    with pytest.raises(KeyRefused, match=reason):
        await asyncio.wait_for(worker.running, 60)
    assert len(worker.refuses) < 9_999, "not at the first refusal"


async def test_a_replica_that_is_not_there_is_no_answer_to_a_refusal(
    links: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch_link, "REFUSED_MAX_S", 0.02)
    worker = links()
    worker.refuses = [error for _ in range(5_000) for error in (refused(401), OSError("no route"))]
    with pytest.raises(KeyRefused):
        await asyncio.wait_for(worker.running, 60)


@pytest.mark.parametrize("status", [404, 500, 503])
async def test_a_replica_that_cannot_serve_now_is_no_refusal(
    links: Any, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setattr(dispatch_link, "REFUSED_MAX_S", 0.0)
    worker = links()
    worker.refuses = [refused(status), OSError("no route"), refused(status)]
    replica = await worker.serving()
    assert replica.all(m.Register) == [REGISTER] and worker.refuses == []


async def test_a_registration_that_is_refused_for_good_ends_the_worker(
    links: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch_link, "REFUSED_MAX_S", 0.0)
    worker = links()
    replica = await worker.nth()
    await replica.nth(m.Register)
    replica.tell(m.Problem("BUSY", "later"))
    await eventually(replica.frames.empty)
    assert not worker.running.done()
    replica.tell(m.Problem("FORBIDDEN", "another Pool than the key's"))
    replica.frames.put_nowait(None)
    with pytest.raises(KeyRefused, match="another Pool than the key's"):
        await asyncio.wait_for(worker.running, 60)


async def test_a_registered_worker_outlives_refusals_of_the_same_kind(
    links: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch_link, "REFUSED_MAX_S", 0.0)
    worker = links()
    replica = await worker.serving()
    replica.tell(m.Problem("FORBIDDEN", "a frame too many"))
    replica.frames.put_nowait(None)
    second = await worker.nth(2)
    await second.nth(m.Report)
    assert not worker.running.done() and not worker.boot.gone.is_set()


async def test_a_message_that_cannot_be_read_ends_the_connection_and_not_the_boot(links: Any) -> None:
    worker = links()
    first = await worker.serving()
    first.frames.put_nowait(b"nonsense")
    second = await worker.nth(2)
    await second.nth(m.Resume)
    assert first.closed and not worker.boot.gone.is_set()
