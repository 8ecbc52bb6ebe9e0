"""Lives at a WHIP ingest: one connection for the whole live, whatever becomes of its Workers and of the ingest."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from dhsched.local.ports import free_port
from dhsched.room import whip
from tests.browser.testcard import Card, Show, show
from tests.browser.watching import stage
from tests.harness.fleet import ended, until
from tests.harness.ingest import Ingest, is_of, running
from tests.harness.theatre import idle, theatre


async def test_a_live_whose_worker_is_killed_goes_on_over_the_same_connection(tmp_path: Path) -> None:
    token = tmp_path / "demo.token"
    token.write_text("of-demo\n")
    ingest = Ingest("of-demo")
    async with running(ingest) as url:
        options = ("--whip", f"{url}/whip/{{live}}", "--whip-token-file", str(tmp_path / "{live}.token"))
        async with stage(None, tmp_path, room=options) as at:
            shown = await ingest.until_connections(1)
            await shown.until_shows(1)
            at.owner(await at.live()).kill()
            await at.until_epoch(2)
            await shown.until_shows(2)
            await shown.until_more()
            assert ingest.offers == ["/whip/demo"] and not shown.deleted, "it is the same connection"
            times = [when for when, _ in shown.pictures]
            assert times == sorted(times) and shown.sounds == sorted(shown.sounds), "timestamps never go back"
            figures = await at.metrics()
            assert figures["dhsched_room_whip_connected"] == figures["dhsched_room_whip_connects_total"] == 1
            assert (await at.fleet.post(f"{at.fleet.dispatch[0]}/v1/lives/demo/end"))[0] == 200
            await until(lambda: shown.deleted, "the end of the resource")
            figures = await at.metrics()
            assert figures["dhsched_room_whip_failures_total"] == 0
    assert len(ingest.all) == 1


async def test_a_zombie_never_reaches_the_ingest(tmp_path: Path) -> None:
    """Frozen, superseded, thawed: what it goes on to send is dropped before the ingest."""
    ingest = Ingest()
    async with running(ingest) as url, stage(None, tmp_path, room=("--whip", f"{url}/whip/{{live}}")) as at:
        shown = await ingest.until_connections(1)
        await shown.until_shows(1)
        zombie = at.owner(await at.live())
        zombie.freeze()
        placed = await at.until_epoch(2)
        assert at.owner(placed) is not zombie
        await shown.until_shows(2)
        before = len(shown.pictures)
        zombie.thaw()
        await shown.until_more(30)
        assert all(is_of(pixel, 2) for _, pixel in shown.pictures[before:])
        assert len(ingest.offers) == 1


async def test_an_ingest_that_is_down_at_first_refuses_and_goes_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whip, "BACKOFF_MAX_S", 0.5)
    monkeypatch.setattr(whip, "SILENT_MAX_S", 4.0)
    port, token = free_port(), tmp_path / "token"
    token.write_text("wrong")
    sent: dict[str, Any] = {"whip": f"http://127.0.0.1:{port}/whip/{{live}}", "whip_token_file": str(token)}
    async with theatre(tmp_path, **sent) as at:
        out = at.room.rooms._whip
        assert out is not None
        await at.fleet.start_worker(show, "a")
        await at.fleet.create("demo")
        await until(lambda: out.failures >= 2, "tries without an ingest")
        ingest = Ingest("right")
        async with running(ingest, port):
            await until(lambda: len(ingest.offers) >= 2, "tries with the wrong token")
            assert ingest.all == [] and out.connects == 0
            token.write_text("right")
            shown = await ingest.until_connections(1)
            await shown.until_more()
            # It closes the connection by itself.
            await shown.pc.close()
            shown = await ingest.until_connections(2)
            await shown.until_more()
            # It is gone and says nothing: its packets are lost, also those that would say goodbye.
            for receiver in shown.pc.getReceivers():
                receiver.transport.transport._send = vanish
            shown = await ingest.until_connections(3)
            await shown.until_more()
            assert out.connected == 1 and len(out) == 1
        # The ingest is stopped with its listener, and another one comes up.
        failed = out.failures
        await until(lambda: out.failures > failed and not out.connected, "the loss")
        again = Ingest("right")
        async with running(again, port):
            await (await again.until_connections(1)).until_more()


async def vanish(data: bytes) -> None:
    pass


async def test_an_ingest_gets_its_keyframes_and_is_let_go_when_nothing_comes(tmp_path: Path) -> None:
    ingest = Ingest()
    async with running(ingest) as url:
        async with theatre(tmp_path, whip=f"{url}/whip/{{live}}", whip_idle_s=1) as at:
            counts = at.room.rooms.counts
            await at.fleet.start_worker(idle, "a")
            worker = (await at.fleet.create("demo"))["worker"]
            publishing = asyncio.create_task(Show("default/demo", 1, Card(1)).publish(at.publish(worker, 1)))
            shown = await ingest.until_connections(1)
            await shown.until_more()
            asked = counts.keyframes_asked
            await shown.request_keyframe()
            await until(lambda: counts.keyframes_asked > asked, "a request to the publisher")
            await ended(publishing)
            await until(lambda: shown.deleted, "the end of an output without a publisher")
            room = at.room.rooms.find("default/demo")
            assert room is not None
            await until(lambda: room.output is None and not room.in_use, "the room to forget it")
            publishing = asyncio.create_task(Show("default/demo", 1, Card(1)).publish(at.publish(worker, 1)))
            shown = await ingest.until_connections(2)
            await shown.until_more()
            await ended(publishing)
        assert shown.deleted, "a room that stops says so"


async def test_one_offer_of_a_live_at_a_time_and_a_bound_for_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An ingest that takes requests and does not answer holds up so many lives, each with one request."""
    monkeypatch.setattr(whip, "CONNECT_AT_ONCE_MAX", 2)
    monkeypatch.setattr(whip, "ANSWER_S", 1.0)
    open_now: list[asyncio.StreamWriter] = []
    most = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal most
        open_now.append(writer)
        most = max(most, len(open_now))
        while await reader.read(4_096):
            pass
        open_now.remove(writer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, theatre(tmp_path, whip=f"http://127.0.0.1:{port}/{{live}}") as at:
        await at.fleet.start_worker(show, "a")
        for name in ("demo", "demo2", "demo3"):
            await at.fleet.create(name)
        out = at.room.rooms._whip
        assert out is not None
        await until(lambda: len(out) == 3 and out.failures >= 4, "tries of all lives")
        assert most == 2
    assert len(out) == 0
