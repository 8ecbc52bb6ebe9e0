"""The room over real sockets, without a browser: viewers are aiortc's, publishers are Workers and hands."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import aiohttp
import pytest

from dhsched.ownership.limits import DEFAULT_LIMITS
from dhsched.room import rooms
from dhsched.room.app import open_room
from dhsched.room.settings import RoomSettings
from tests.browser.testcard import Card, Show, begin, show
from tests.harness.fleet import ended, until
from tests.harness.theatre import SDP, Watcher, idle, theatre


async def test_one_viewer_over_two_workers(tmp_path: Path) -> None:
    """Worker and epoch change, the connection does not; its timestamps go on."""
    async with theatre(tmp_path) as at:
        for name in ("a", "b"):
            await at.fleet.start_worker(show, name)
        first = await at.fleet.create("demo")
        watcher = Watcher()
        await watcher.connect(at)
        await until(lambda: len(watcher.seen["video"]) > 8 and watcher.seen["audio"], "pictures")
        before = len(watcher.seen["video"])
        status, moved = await at.fleet.reassign("demo")
        assert status == 200 and moved["worker"] != first["worker"]
        room = at.room.rooms.find("default/demo")
        assert room is not None
        await until(lambda: room.on_air == 2, "the next generation on air")
        await until(lambda: len(watcher.seen["video"]) > before + 15, "its pictures")
        for seen in watcher.seen.values():
            assert seen == sorted(seen), "timestamps never go back"
        state = await at.state()
        assert [(shown["epoch"], shown["worker"]) for shown in state["timeline"]] == [
            (1, first["worker"]),
            (2, moved["worker"]),
        ]
        assert state["owner"]["worker"] == moved["worker"] and state["viewers"] == 1 and state["on_air"] == 2
        async with at.fleet.http.get(f"{at.url}/v1/lives") as response:
            listed = (await response.json())["lives"]
        assert listed == [state["live_id"]], "everybody may watch it here"
        at.room.rooms.gate.needs_tokens = True
        async with at.fleet.http.get(f"{at.url}/v1/lives") as response:
            assert (await response.json())["lives"] == [], "which lives there are is not said where viewers need tokens"
        at.room.rooms.gate.needs_tokens = False

        async with at.fleet.http.delete(at.url + watcher.location) as response:
            assert response.status == 200
        assert room.viewers == {}
        async with at.fleet.http.delete(at.url + watcher.location) as response:
            assert response.status == 404
        await watcher.close()


async def test_what_viewers_may_ask_and_say(tmp_path: Path) -> None:
    async with theatre(tmp_path, viewers_max=1) as at:
        http = at.fleet.http
        for path, status in (("/readyz", 200), ("/healthz", 200), ("/live/demo", 200), ("/page/live.js", 200)):
            async with http.get(at.url + path) as response:
                assert response.status == status
        for path in ("/live/a%20b", "/page/../app.py", "/page/none.js", "/v1/lives/none/state"):
            async with http.get(at.url + path) as response:
                assert response.status in (400, 404), path

        watcher = Watcher()
        offer = await watcher.offer()
        async with http.post(at.path("whep"), data=offer, headers=SDP) as response:
            assert response.status == 404, "there is no such live yet"
        await at.fleet.start_worker(show, "a")
        await at.fleet.create("demo")
        await asyncio.sleep(0.6)  # What Dispatch said is believed for half a second.
        two = Watcher()
        twice = await two.offer(("video", "video"))
        for body, headers, status in (
            (offer, {"Content-Type": "text/plain"}, 415),
            ("", SDP, 400),
            ("v=0", SDP, 400),
            (b"\xff\xfe", SDP, 400),
            (twice, SDP, 400),
            (offer.replace("VP8", "VP7"), SDP, 400),
            (offer + "a=x" * 40_000, SDP, 413),
        ):
            async with http.post(at.path("whep"), data=body, headers=headers) as response:
                assert response.status == status, (body[:20], await response.text())
        assert at.room.rooms.viewers == 0
        async with http.post(at.path("whep"), data=offer, headers=SDP) as response:
            assert response.status == 201
        async with http.post(at.path("whep"), data=offer, headers=SDP) as response:
            assert response.status == 503 and (await response.json())["code"] == "BUSY"
        await watcher.close()
        await two.close()

        assert (await at.fleet.post(at.path("text"), {"text": "hello"}))[1]["seq"] == 1
        assert (await at.fleet.post(at.path("text"), {"kind": "interrupt"}))[0] == 200
        assert (await at.fleet.post(at.path("text"), {"kind": "config", "text": "{}"}))[0] == 400
        assert (await at.fleet.post(f"{at.url}/v1/lives/none/text", {"text": "hello"}))[0] == 404
        async with http.post(at.path("text"), data='{"text": "x"}', headers={"Content-Type": "text/plain"}) as response:
            assert response.status == 415, "what any page can send unasked is not taken"
    async with theatre(tmp_path, text=False) as at:
        assert (await at.fleet.post(at.path("text"), {"text": "hello"}))[0] == 403


async def test_a_superseded_publisher_is_told_and_ended(tmp_path: Path) -> None:
    """By the next one's first packet; a connection that begins late is told at once."""
    async with theatre(tmp_path) as at:
        await at.fleet.start_worker(idle, "a")
        await at.fleet.start_worker(idle, "b")
        first = await at.fleet.create("demo")
        old = Show("default/demo", 1, Card(1))
        publishing = [asyncio.create_task(old.publish(at.publish(first["worker"], 1)))]
        try:
            room = at.room.rooms.room("default/demo")
            await until(lambda: room.on_air == 1, "the first on air")
            _, moved = await at.fleet.reassign("demo")
            new = Show("default/demo", 2, Card(2))
            publishing.append(asyncio.create_task(new.publish(at.publish(moved["worker"], 2))))
            await until(lambda: room.on_air == 2 and old.stale.is_set(), "the take-over")
            late = Show("default/demo", 1, Card(1))
            publishing.append(asyncio.create_task(late.publish(at.publish(first["worker"], 1))))
            await until(late.stale.is_set, "the late one to be told")
            assert room.on_air == 2 and not new.stale.is_set()
        finally:
            for task in publishing:
                await ended(task)


async def test_who_was_silent_is_asked_about_before_its_next_packet(tmp_path: Path) -> None:
    """It was frozen while the live moved on, and nobody else has published yet: still nothing of it passes."""
    async with theatre(tmp_path) as at:
        await at.fleet.start_worker(idle, "a")
        await at.fleet.start_worker(idle, "b")
        first = await at.fleet.create("demo")
        publish, card = at.publish(first["worker"], 1), Card(1)
        headers = {"Authorization": f"Bearer {publish.token}"}
        async with at.fleet.http.ws_connect(f"{at.url}/v1/publish", headers=headers) as socket:
            await socket.send_str(begin("default/demo", 1))
            await send_slots(socket, card, 10)
            room = at.room.rooms.room("default/demo")
            await until(lambda: room.on_air == 1, "the first on air")
            await asyncio.sleep(1.1)
            await send_slots(socket, card, 5)
            assert (await at.fleet.reassign("demo"))[0] == 200
            await asyncio.sleep(1.1)
            shown = room.shown[-1].last_ms
            with contextlib.suppress(ConnectionError):  # The first packet is answered by a close.
                await send_slots(socket, card, 5)
            said = [message async for message in socket]
            assert said[-1].json() == {"stale": {"epoch": 2}} and socket.close_code == 4409
            assert room.shown[-1].last_ms == shown


async def test_without_dispatch_nobody_new_publishes(tmp_path: Path) -> None:
    async with theatre(tmp_path) as at:
        settings = RoomSettings(port=0, dispatch="http://127.0.0.1:1", deadline_s=0.5, access="open")
        async with open_room(settings) as alone:
            urls: list[str] = []
            await at.fleet.serve(alone.app, urls)
            headers = {"Authorization": f"Bearer {at.publish('a#1', 1).token}"}
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await at.fleet.http.ws_connect(f"{urls[0]}/v1/publish", headers=headers)
            assert refused.value.status == 503
            async with at.fleet.http.get(f"{urls[0]}/readyz") as response:
                assert response.status == 503 and "no replica answers" in (await response.json())["detail"]


async def send_slots(socket: aiohttp.ClientWebSocketResponse, card: Card, slots: int) -> None:
    from dhsched.room.packets import write_packet

    for _ in range(slots):
        for packet in card.step():
            await socket.send_bytes(write_packet(packet))


async def test_an_ended_live_leaves_the_air(tmp_path: Path) -> None:
    """Its Worker never hears of the end, or does not care, and goes on sending: the room itself ends the show."""
    async with theatre(tmp_path, confirm_s=0.2) as at:
        await at.fleet.start_worker(idle, "a")
        placed = await at.fleet.create("demo")
        defiant = Show("default/demo", 1, Card(1))
        publishing = asyncio.create_task(defiant.publish(at.publish(placed["worker"], 1)))
        try:
            room = at.room.rooms.room("default/demo")
            await until(lambda: room.on_air == 1, "the live on air")
            watcher = Watcher()
            await watcher.connect(at)
            await until(lambda: len(watcher.seen["video"]) > 3, "pictures", 30)
            assert (await at.fleet.post(f"{at.fleet.dispatch[0]}/v1/lives/demo/end"))[0] == 200
            await until(lambda: room.on_air == 0 and not room.in_use, "the end of the show")
            shown = room.shown[-1].last_ms
            refused = at.room.rooms.counts.refused
            await until(lambda: at.room.rooms.counts.refused > refused, "its publisher to try again, in vain")
            assert room.shown[-1].last_ms == shown and not room.in_use, "nothing more passes"
            state = await at.state()
            assert state["owner"]["state"] == "ended" and state["on_air"] == 0 and state["viewers"] == 0
            late = Watcher()
            async with at.fleet.http.post(at.path("whep"), data=await late.offer(), headers=SDP) as response:
                assert response.status == 410 and (await response.json())["code"] == "ENDED"
            for one in (watcher, late):
                await one.close()
        finally:
            await ended(publishing)


async def test_who_was_silent_while_its_live_ended_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rooms, "HOME_S", 60.0)
    async with theatre(tmp_path, confirm_s=60) as at:
        await at.fleet.start_worker(idle, "a")
        placed = await at.fleet.create("demo")
        card = Card(1)
        headers = {"Authorization": f"Bearer {at.publish(placed['worker'], 1).token}"}
        async with at.fleet.http.ws_connect(f"{at.url}/v1/publish", headers=headers) as socket:
            await socket.send_str(begin("default/demo", 1))
            await send_slots(socket, card, 10)
            room = at.room.rooms.room("default/demo")
            await until(lambda: room.on_air == 1, "the live on air")
            assert (await at.fleet.post(f"{at.fleet.dispatch[0]}/v1/lives/demo/end"))[0] == 200
            await asyncio.sleep(1.1)  # Longer than a publisher may be silent without being asked about.
            await send_slots(socket, card, 5)
            async with asyncio.timeout(20):
                said = [message async for message in socket]
            assert said[-1].json() == {"ended": True} and socket.close_code == 4410
            assert room.on_air == 0


async def test_viewers_of_an_ended_live_are_let_go_also_without_a_publisher(tmp_path: Path) -> None:
    async with theatre(tmp_path, confirm_s=0.2) as at:
        await at.fleet.start_worker(idle, "a")
        await at.fleet.create("demo")
        watcher = Watcher()
        await watcher.connect(at)
        assert at.room.rooms.viewers == 1
        assert (await at.fleet.post(f"{at.fleet.dispatch[0]}/v1/lives/demo/end"))[0] == 200
        await until(lambda: at.room.rooms.viewers == 0, "the viewer to be let go")
        await watcher.close()


async def test_viewers_are_told_of_the_servers_that_help_them(tmp_path: Path) -> None:
    servers = "stun:127.0.0.1:9,turn:127.0.0.1:9"
    given = {"ice_servers": servers, "turn_secret": "shared", "allowed_origins": "https://app.example"}
    async with theatre(tmp_path, DEFAULT_LIMITS, None, **given) as at:
        await at.fleet.start_worker(idle, "a")
        await at.fleet.create("demo")
        names = []
        for _ in range(2):
            watcher = Watcher()
            headers = {**SDP, "Origin": "https://app.example"}
            async with at.fleet.http.post(at.path("whep"), data=await watcher.offer(), headers=headers) as response:
                assert response.status == 201 and "Link" in response.headers["Access-Control-Expose-Headers"]
                stun, turn = response.headers.getall("Link")
            assert stun == '<stun:127.0.0.1:9>; rel="ice-server"'
            assert turn.startswith("<turn:127.0.0.1:9>") and 'credential="' in turn
            names.append(turn.partition('username="')[2].partition('"')[0].partition(":")[2])
            await watcher.close()
        assert len({*names}) == 2, "each connection has a name of its own, where viewers have none"


@pytest.mark.parametrize("kind", ["video", "audio"])
async def test_one_kind_of_media_alone(tmp_path: Path, kind: str) -> None:
    """An offer with only video, or only audio, is answered and served."""
    async with theatre(tmp_path) as at:
        await at.fleet.start_worker(show, "a")
        await at.fleet.create("demo")
        watcher = Watcher()
        await watcher.connect(at, (kind,))
        await until(lambda: len(watcher.seen[kind]) > 8, f"{kind} alone", 30)
        await watcher.close()
