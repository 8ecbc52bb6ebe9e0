"""Media over IPv6 alone: to a viewer, and to a WHIP ingest."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.browser.testcard import show
from tests.harness.fleet import until
from tests.harness.ingest import Ingest, running
from tests.harness.theatre import Watcher, theatre


async def test_media_goes_over_ipv6(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Aiortc's viewer and ingest in this process have the room's addresses, which are one: ::1."""
    import aioice.ice

    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            pass
    except OSError as error:
        pytest.skip(f"NO IPV6: media over it is not tested; this machine has no ::1 ({error})")
    monkeypatch.setattr(aioice.ice, "get_host_addresses", aioice.ice.get_host_addresses)
    ingest = Ingest()
    async with running(ingest) as url, theatre(tmp_path, addresses="::1", whip=f"{url}/whip/{{live}}") as at:
        await at.fleet.start_worker(show, "a")
        await at.fleet.create("demo")
        watcher = Watcher()
        await watcher.connect(at)
        await until(lambda: len(watcher.seen["video"]) > 8 and watcher.seen["audio"], "pictures over IPv6")
        answer = watcher.pc.remoteDescription.sdp
        candidates = [line.split()[4] for line in answer.splitlines() if line.startswith("a=candidate:")]
        assert candidates and {*candidates} == {"::1"}, answer
        shown = await ingest.until_connections(1)
        await shown.until_more()
        assert shown.remote_address() == "::1"
        await watcher.close()
