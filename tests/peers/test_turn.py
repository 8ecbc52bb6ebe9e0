"""A viewer that reaches the room only through a TURN server: coturn from Debian, Chromium, three networks."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from aioice.stun import TransactionFailed, TransactionTimeout
from aioice.turn import create_turn_endpoint
from playwright.async_api import async_playwright

from dhsched.bench.avatar_room import FLAGS, chromium
from dhsched.local.ports import free_port
from dhsched.room.ice import Credentials, credentials
from tests.browser.watching import Watching
from tests.harness.fleet import until, until_so
from tests.harness.networks import NEAR_ROOM, NEAR_VIEWER, ROOM, VIEWER, Networks, networks
from tests.harness.processes import Process

SECRET = "shared-with-coturn"
PAIR = """async () => {
  const pc = viewer.pc();
  if (!pc) return null;
  const reports = new Map([...await pc.getStats()]);
  const transport = [...reports.values()].find((each) => each.type === "transport");
  const pair = transport && reports.get(transport.selectedCandidatePairId);
  return pair && { local: reports.get(pair.localCandidateId), remote: reports.get(pair.remoteCandidateId) };
}"""


@pytest.fixture
def three() -> Iterator[Networks]:
    if shutil.which("turnserver") is None:
        pytest.skip("NO TURN SERVER: viewers behind one are not tested; install coturn")
    with networks() as made:
        yield made


def coturn(folder: Path, *, listens: str, relays: str, port: int = 3478) -> tuple[str, ...]:
    return (
        *("turnserver", "-n", "--listening-ip", listens, "--relay-ip", relays, "--listening-port", str(port)),
        *("--use-auth-secret", "--static-auth-secret", SECRET, "--realm", "dhsched", "--no-cli", "--no-tls"),
        *("--no-dtls", "--userdb", str(folder / "turndb"), "--pidfile", str(folder / "pid"), "--log-file", "stdout"),
        "--simple-log",
    )


async def test_a_viewer_without_a_route_to_the_room_watches_through_turn(three: Networks, tmp_path: Path) -> None:
    path = chromium()
    if path is None:
        pytest.skip("NO BROWSER: a viewer behind a TURN server is not tested; install chromium")
    secret = tmp_path / "secret"
    secret.write_text(SECRET)
    options = ("--host", "0.0.0.0", "--insecure", "--addresses", ROOM, "--turn-secret-file", str(secret))
    servers = ("--ice-servers", f"stun:{NEAR_VIEWER}:3478,turn:{NEAR_VIEWER}:3478?transport=udp")
    async with AsyncExitStack() as stack:
        relay = coturn(tmp_path, listens=NEAR_VIEWER, relays=NEAR_ROOM)
        turn = await stack.enter_async_context(three.running(three.between, *relay))
        inside = three.module(three.room, "tests.peers.inside", str(tmp_path), *options, *servers)
        deployment = await stack.enter_async_context(inside)
        link = urlsplit(await deployment.until_ready())
        # Signalling goes over TCP through a proxy, as it often does; media has no such way.
        passing = three.module(three.between, "tests.peers.passing", NEAR_VIEWER, str(link.port), ROOM)
        await (await stack.enter_async_context(passing)).until_ready()
        playwright = await stack.enter_async_context(async_playwright())
        browser = await playwright.chromium.launch(
            executable_path=three.wrapped(three.viewer, path, tmp_path), args=[*FLAGS]
        )
        stack.push_async_callback(browser.close)
        page = await browser.new_page()
        await page.goto(link._replace(netloc=f"{NEAR_VIEWER}:{link.port}").geturl())
        watching = Watching(page)
        try:
            await watching.until_playing(1)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{''.join(turn.printed[-60:])}") from None
        pair = await page.evaluate(PAIR)
        assert pair["local"]["candidateType"] == "relay" and pair["local"]["address"] == NEAR_ROOM, pair
        assert pair["local"]["url"].startswith(f"turn:{NEAR_VIEWER}:3478") and pair["remote"]["address"] == ROOM, pair
        deployment.write(b"kill")
        found = await watching.until_playing(2)
        assert found["connects"] == 1, "the Worker was killed, and the way through the TURN server stayed"


async def test_a_room_without_a_route_to_its_ingest_sends_through_turn(three: Networks, tmp_path: Path) -> None:
    port = free_port()
    secret = tmp_path / "secret"
    secret.write_text(SECRET)
    options = (
        "--addresses",
        ROOM,
        "--turn-secret-file",
        str(secret),
        "--whip",
        f"http://{NEAR_ROOM}:{port}/whip/{{live}}",
    )
    own = ("--own-ice-servers", f"turn:{NEAR_ROOM}:3478")
    async with AsyncExitStack() as stack:
        relay = coturn(tmp_path, listens=NEAR_ROOM, relays=NEAR_VIEWER)
        await stack.enter_async_context(three.running(three.between, *relay))
        receiving = three.module(three.viewer, "tests.peers.ingesting", VIEWER, str(port))
        ingest = await stack.enter_async_context(receiving)
        await ingest.until_ready()
        passing = three.module(three.between, "tests.peers.passing", NEAR_ROOM, str(port), VIEWER)
        await (await stack.enter_async_context(passing)).until_ready()
        inside = three.module(three.room, "tests.peers.inside", str(tmp_path), *options, *own)
        deployment = await stack.enter_async_context(inside)
        await deployment.until_ready()
        await until(lambda: ingest.lines and ingest.lines[-1]["epoch"] == 1, "pictures at the ingest")
        deployment.write(b"kill")
        await until(lambda: ingest.lines[-1]["epoch"] == 2, "pictures of the next Worker")
        last = ingest.lines[-1]
        assert last["from"] == NEAR_VIEWER and last["connection"] == 0, last


async def test_coturn_takes_credentials_of_the_shared_secret_until_they_expire(tmp_path: Path) -> None:
    if shutil.which("turnserver") is None:
        pytest.skip("NO TURN SERVER: its credentials are not tested; install coturn")
    port = free_port()
    command = coturn(tmp_path, listens="127.0.0.1", relays="127.0.0.1", port=port)
    process = await Process.spawn("turnserver", "setpriv", "--pdeathsig", "KILL", *command)

    async def takes(given: Credentials) -> bool:
        try:
            transport, _ = await create_turn_endpoint(
                asyncio.DatagramProtocol, ("127.0.0.1", port), given.username, given.password
            )
        except TransactionFailed as refused:
            assert refused.response.attributes["ERROR-CODE"][0] == 401
            return False
        transport.close()
        return True

    async def until_takes(given: Credentials) -> bool:
        try:
            return await takes(given)
        except TransactionTimeout:  # It has just been started.
            return False

    try:
        now = int(time.time())
        await until_so(
            lambda: until_takes(credentials(SECRET, "demo/Ben", until=now + 600)), bool, "coturn to take them"
        )
        assert not await takes(credentials("another secret", "demo/Ben", until=now + 600))
        assert not await takes(credentials(SECRET, "demo/Ben", until=now - 600)), "these have expired"
        good = credentials(SECRET, "demo/Ben", until=now + 600)
        assert not await takes(replace(good, username=good.username.replace(str(now + 600), str(now + 6_000))))
    finally:
        await process.stop(wait_s=0)
