"""Hostile viewers: offers that never connect, one address that wants every place, headers that lie."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest

from dhsched.access.viewers import ANYBODY, VerifiedViewer, Viewer
from dhsched.errors import BadSetting
from dhsched.room.app import run_room
from dhsched.room.places import KEPT_S, Place, Places
from dhsched.room.settings import RoomSettings
from dhsched.web import Problem
from tests.harness.fleet import until, until_so
from tests.harness.keyed import bearer
from tests.harness.theatre import SDP, Theatre, Watcher, idle, theatre

OVER = ("connected", "failed", "closed")


async def post_offer(at: Theatre, offer: str, **headers: str) -> int:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    async with at.fleet.http.post(at.path("whep"), data=offer, headers={**SDP, **given}) as response:
        await response.read()
        return response.status


async def test_hostile_offers_that_never_connect_keep_nobody_out(tmp_path: Path) -> None:
    """200 of them, as many as there are places: another address gets in at once, the same one a moment later."""
    async with theatre(tmp_path, trusted_proxies="127.0.0.0/8", stun_s=3) as at:
        await at.fleet.start_worker(idle, "a")
        await at.fleet.create("demo")
        silent = Watcher()
        offer = await silent.offer()
        statuses = [await post_offer(at, offer, X_Forwarded_For="203.0.113.7") for _ in range(200)]
        assert {*statuses} <= {201, 503} and statuses[0] == 201
        assert at.room.rooms.places.offers <= 16 < at.room.rooms.settings.viewers_max
        assert await post_offer(at, offer, X_Forwarded_For="203.0.113.8") == 201, "another address, at once"
        honest = [await gets_in(at, "203.0.113.8"), await gets_in(at, "203.0.113.7")]
        await until(lambda: at.room.rooms.places.offers == 0, "the silent offers to be given up")
        assert at.room.rooms.viewers == 2 and at.room.rooms.places.given_up > 0
        for watcher in (silent, *honest):
            await watcher.close()


async def gets_in(at: Theatre, address: str) -> Watcher:
    """A viewer at this address that tries again until it is connected, as the page does."""
    for _ in range(20):
        watcher = Watcher()
        status = await watcher.try_connect(at, await watcher.offer(), **{"X-Forwarded-For": address})
        if status == 201:
            with contextlib.suppress(AssertionError):  # A busy machine may need longer than 3 s for its packets.
                await until(lambda at=watcher: at.pc.connectionState in OVER, "the connection", 10)  # type: ignore[misc]
        if watcher.pc.connectionState == "connected":
            return watcher
        await watcher.close()
        await asyncio.sleep(0.5)
    raise AssertionError(f"an honest viewer at {address} did not get in")


async def test_a_hostile_viewer_has_few_connections(tmp_path: Path) -> None:
    async with theatre(tmp_path, access="keys", connections_per_viewer_max=2) as at:
        await at.fleet.start_worker(idle, "a")
        await at.fleet.create("demo")
        watcher = Watcher()
        offer = await watcher.offer()
        token = await at.viewer_token(identity="Mallory")
        again = await at.viewer_token(identity="Mallory")
        statuses = [await post_offer(at, offer, **bearer(each)) for each in (token, again, token, again)]
        assert statuses == [201, 201, 503, 503], "whichever token it shows"
        assert await post_offer(at, offer, **bearer(await at.viewer_token(identity="Ben"))) == 201
        await watcher.close()


async def test_metrics_are_not_for_hostile_eyes(tmp_path: Path) -> None:
    for access in ("open", "keys"):
        async with theatre(tmp_path, access=access) as at:
            for method in ("GET", "POST", "HEAD"):
                async with at.fleet.http.request(method, f"{at.url}/metrics") as response:
                    assert response.status == 404
            urls: list[str] = []
            await at.fleet.serve(at.room.metrics, urls)
            async with at.fleet.http.get(f"{urls[0]}/metrics") as response:
                assert response.status == 200 and "dhsched_room_offers " in await response.text()
            async with at.fleet.http.get(f"{urls[0]}/metrics", headers={"Origin": "http://evil.example"}) as response:
                assert response.status == 403
            async with at.fleet.http.get(f"{urls[0]}/metrics", headers={"Host": "evil.example"}) as response:
                assert response.status == 403
            async with at.fleet.http.get(f"{urls[0]}/v1/lives/demo/state") as response:
                assert response.status == 404


@pytest.mark.parametrize(
    "remote_chain, expected",
    [
        (None, "127.0.0.1"),
        ("203.0.113.7", "203.0.113.7"),
        ("6.6.6.6, 203.0.113.7", "203.0.113.7"),  # What the client sent itself comes first, and does not count.
        ("6.6.6.6, 203.0.113.7, 127.0.0.2", "203.0.113.7"),
        ("203.0.113.7:4711", "203.0.113.7"),
        ("[2001:db8::1]:4711", "2001:db8::"),
        ("2001:db8::1:2", "2001:db8::"),
        ("nonsense", "127.0.0.1"),
        ("203.0.113.7, nonsense", "127.0.0.1"),
        (", ,", "127.0.0.1"),
    ],
)
async def test_only_a_trusted_proxy_names_an_address(tmp_path: Path, remote_chain: str | None, expected: str) -> None:
    headers = {} if remote_chain is None else {"X-Forwarded-For": remote_chain}
    for trusted, wanted in (("127.0.0.0/8", expected), ("", "127.0.0.1"), ("10.0.0.0/8", "127.0.0.1")):
        async with theatre(tmp_path, trusted_proxies=trusted) as at:
            seen: list[str] = []
            real = at.room.rooms.address_of

            def noted(request: Any, real: Any = real, seen: list[str] = seen) -> str:
                seen.append(real(request))
                return seen[-1]

            at.room.rooms.address_of = noted  # type: ignore[method-assign]
            async with at.fleet.http.post(at.path("text"), json={"text": "x"}, headers=headers) as response:
                assert response.status == 404
            assert seen == [wanted]


async def test_a_hostile_address_has_so_many_tcp_connections(tmp_path: Path) -> None:
    """Further ones are closed; when one of the others ends, the next is accepted."""
    for trusted, limited in (("", True), ("127.0.0.1", False)):
        settings = RoomSettings(
            port=0, metrics_port=0, access="open", connections_per_address_max=3, trusted_proxies=trusted, stop_s=0
        )
        stop, url = asyncio.Event(), asyncio.get_running_loop().create_future()
        running = asyncio.create_task(run_room(settings, stop, say=url.set_result))
        port = int((await asyncio.wait_for(url, 60)).rpartition(":")[2])
        ask = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"

        async def answer(port: int = port, ask: bytes = ask) -> tuple[bytes, asyncio.StreamWriter]:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(ask)
            try:
                return await reader.readline(), writer
            except ConnectionError:
                return b"", writer

        opened = [await answer() for _ in range(5)]
        assert [bool(line) for line, _ in opened] == [True, True, True, not limited, not limited]
        opened[0][1].close()
        await until_so(answer, lambda found: found[0], "a place of the connection that ended")
        for _, writer in opened:
            writer.close()
        stop.set()
        await running


def test_trusted_proxies_are_addresses() -> None:
    for wrong in ("proxy.example", "10.0.0.1/8", "1.2.3"):
        with pytest.raises(BadSetting, match="trusted_proxies"):
            RoomSettings(trusted_proxies=wrong)


# -- places, by themselves


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def taken(places: Places, address: str = "a", viewer: VerifiedViewer = ANYBODY) -> Place | None:
    try:
        place = places.take(address=address, viewer=viewer, live="L")
    except Problem as problem:
        assert problem.code == "BUSY"
        return None
    place.leave = lambda: places.free(place)
    return place


def test_one_address_gets_a_quarter_of_the_places() -> None:
    clock = Clock()
    places = Places(RoomSettings(viewers_max=8, offers_max=8), clock)
    for place in (taken(places), taken(places)):
        assert place is not None
        place.heard = place.connected = True
    assert taken(places) is None and taken(places, "b") is not None
    many = [taken(places, f"c{n}") for n in range(10)]
    assert sum(place is not None for place in many) == 5 and len(places.all) == 8


def test_the_oldest_silent_offer_makes_way() -> None:
    clock = Clock()
    places = Places(RoomSettings(offers_max=4, offers_per_address_max=2), clock)
    first, second = taken(places), taken(places)
    assert first is not None and second is not None
    assert taken(places) is None, "too young to make way"
    clock.now += KEPT_S
    first.heard = True
    third = taken(places)
    assert third is not None and second not in places.all and first in places.all, "who was heard from stays"
    third.heard = True
    clock.now += KEPT_S
    assert taken(places) is None, "nobody to make way"
    assert taken(places, "b") is not None and taken(places, "c") is not None
    assert taken(places, "d") is None
    clock.now += KEPT_S
    assert taken(places, "d") is not None and len(places.all) == 4


def test_an_offer_that_is_being_answered_does_not_make_way() -> None:
    clock = Clock()
    places = Places(RoomSettings(offers_max=1), clock)
    places.take(address="a", viewer=ANYBODY, live="L")
    clock.now += 60
    assert taken(places) is None


def test_a_viewer_is_one_at_any_address() -> None:
    places = Places(RoomSettings(connections_per_viewer_max=1), Clock())

    def named(identity: str) -> VerifiedViewer:
        return VerifiedViewer(Viewer("t/L", frozenset(), identity), "1", "n", 1e12)

    assert taken(places, "a", named("x")) and not taken(places, "b", named("x")) and taken(places, "b", named("y"))
    assert taken(places, "c") and taken(places, "c"), "without tokens only the address counts"
