"""What strangers at a room can do to others: type over the app, fill its queue, take its request ids, aim packets."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dhsched.errors import BadSetting
from dhsched.ownership.limits import DEFAULT_LIMITS
from dhsched.room.settings import RoomSettings
from tests.harness.theatre import SDP, Theatre, Watcher, idle, theatre

FREELY: dict[str, Any] = {"viewer_rate_per_s": 100, "live_rate_per_s": 100}


async def say(at: Theatre, text: str, **fields: Any) -> tuple[int, Any]:
    """As a viewer."""
    return await at.fleet.post(at.path("text"), {"text": text, **fields})


async def test_viewers_and_the_app_never_meet_in_a_request_id(tmp_path: Path) -> None:
    async with theatre(tmp_path, **FREELY) as at:
        await at.fleet.start_worker(idle, "a")
        await at.fleet.create("demo")
        status, said = await say(at, "from a stranger", request_id="turn-1")
        assert status == 200 and said == {"live_id": "demo", "request_id": "turn-1", "seq": 1}
        assert (await at.fleet.push("demo", "from the app", request_id="turn-1"))[1]["seq"] == 2
        assert (await at.fleet.push("demo", "from the app", request_id="turn-2"))[1]["seq"] == 3
        assert (await say(at, "from a stranger", request_id="turn-2"))[1]["seq"] == 4
        assert (await say(at, "from a stranger", request_id="turn-2"))[1]["duplicate"] is True
        assert (await at.fleet.push("demo", "from the app", request_id="turn-2"))[1]["duplicate"] is True


async def test_viewers_leave_most_of_the_queue_to_the_app(tmp_path: Path) -> None:
    async with theatre(tmp_path, limits=replace(DEFAULT_LIMITS, pending_max=8), **FREELY) as at:
        await at.fleet.start_worker(deaf, "a")
        await at.fleet.create("demo")
        answers = [await say(at, f"stranger {n}") for n in range(4)]
        assert [status for status, _ in answers] == [200, 200, 429, 429]
        refused = answers[-1][1]
        assert refused["code"] == "TOO_MANY_PENDING" and refused["pending"] == 2 and "viewers" in refused["detail"]
        answers = [await at.fleet.push("demo", f"app {n}") for n in range(7)]
        assert [status for status, _ in answers] == [200] * 6 + [429], "the rest is the app's"


async def test_viewers_are_slowed_down_and_the_app_is_not(tmp_path: Path) -> None:
    async with theatre(tmp_path, viewer_rate_per_s=0.1, live_rate_per_s=0.1) as at:
        await at.fleet.start_worker(idle, "a")
        await at.fleet.create("demo")
        for fields in ({"text": "hello"}, {"kind": "interrupt"}):
            assert (await at.fleet.post(at.path("text"), fields))[0] == 200
            async with at.fleet.http.post(at.path("text"), json=fields) as response:
                assert response.status == 429 and int(response.headers["Retry-After"]) >= 1
                assert (await response.json())["code"] == "RATE_LIMITED"
        for n in range(4):
            assert (await at.fleet.push("demo", f"app {n}"))[0] == 200
            assert (await at.fleet.push("demo", "", kind="interrupt"))[0] == 200


async def test_viewers_type_only_where_the_room_is_on_loopback_or_says_so(tmp_path: Path) -> None:
    async with theatre(tmp_path, host="0.0.0.0", insecure=True) as at:
        await at.fleet.start_worker(idle, "a")
        await at.fleet.create("demo")
        assert (await say(at, "hello"))[0] == 403 and not (await at.state())["may_say"]
    async with theatre(tmp_path, host="0.0.0.0", insecure=True, text=True) as at:
        await at.fleet.start_worker(idle, "a")
        await at.fleet.create("demo")
        assert (await say(at, "hello"))[0] == 200 and (await at.state())["may_say"]


async def test_a_room_that_strangers_would_reach_does_not_start_unless_it_is_told_to() -> None:
    """Nothing listens: that is refused before."""
    for host in ("0.0.0.0", "room.example"):
        with pytest.raises(BadSetting, match="--insecure"):
            RoomSettings(host=host, access="open")
    command = ("run", "room", "--host", "::", "--port", "0", "--access", "open")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", "from dhsched.cli import main; main()", *command),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        printed, _ = await asyncio.wait_for(process.communicate(), 60)
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode == 1, printed
    assert b"--insecure" in printed and b"Traceback" not in printed, printed


class Target(asyncio.DatagramProtocol):
    """Somebody's address, at which nothing should arrive."""

    def __init__(self) -> None:
        self.hit: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def datagram_received(self, data: bytes, addr: tuple[str | Any, int]) -> None:
        if not self.hit.done():
            self.hit.set_result(data)


async def test_an_offer_cannot_aim_packets_at_an_address(tmp_path: Path) -> None:
    async with theatre(tmp_path) as at:
        await at.fleet.start_worker(idle, "a")
        await at.fleet.create("demo")
        loop = asyncio.get_running_loop()
        transport, target = await loop.create_datagram_endpoint(Target, local_addr=("127.0.0.1", 0))
        port = transport.get_extra_info("sockname")[1]
        aimed = f"a=candidate:7 1 udp 2113937151 127.0.0.1 {port} typ host\r\n"
        watcher = Watcher()
        offer = (await watcher.offer()).replace("a=ice-ufrag", aimed + "a=ice-ufrag")
        assert aimed in offer
        async with at.fleet.http.post(at.path("whep"), data=offer, headers=SDP) as response:
            assert response.status == 201
        try:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(target.hit, 2)
        finally:
            transport.close()
            await watcher.close()


async def deaf(session: Any) -> None:
    """Takes up its live, and no input."""
    inputs = session.inputs()
    await inputs.__anext__()
    await session.stopping.wait()
