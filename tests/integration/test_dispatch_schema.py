"""Schemathesis against the served OpenAPI: whatever the document allows is served, whatever it forbids is refused.

The configuration accepts 401, 410 and 422 for well-formed requests (a publish token that nobody issued, a live that
has ended, a Pool that does not exist) and 503 where a server error would otherwise be a failure (FULL is an answer).
Of events it also accepts 400: a cursor of several cells. Of pushes it also accepts 400, 413 and 429: a text item with a
configuration, a text above the limit, too many items.
Everything else is checked.
"""

import asyncio
import subprocess
import sys
from pathlib import Path

import aiohttp
import pytest

from dhsched.local.deployment import Deployment
from dhsched.store.steps.redis import RedisStore
from tests.harness.replicas import register, replicas
from tests.harness.servers import running_server

CONFIG = """
[checks]
not_a_server_error.expected-statuses = ["2xx", "3xx", "4xx", 503]
positive_data_acceptance.expected-statuses = ["2xx", 401, 404, 409, 410, 422, 503]

[phases.stateful]
enabled = false

[[operations]]
include-name = "GET /v1/events"
checks.positive_data_acceptance.expected-statuses = ["2xx", 400, 401, 503]

[[operations]]
include-name = "POST /v1/lives/{live_id}/text"
checks.positive_data_acceptance.expected-statuses = ["2xx", 400, 404, 410, 413, 429, 503]
checks.negative_data_rejection.expected-statuses = [400, 404, 405, 413, 415, 429, 503]
"""


async def prepare(url: str) -> None:
    """The ids that Schemathesis likes best exist, so that it gets past NOT_FOUND."""
    async with aiohttp.ClientSession(url) as http:
        for method, path, body in (
            ("PUT", "/v1/pools/0", {}),
            ("PUT", "/v1/digital-ids/0", {"pools": [{"pool": "0"}]}),
            ("POST", "/v1/lives", {"digital_id": "0", "live_id": "0"}),
        ):
            async with http.request(method, path, json=body) as response:
                assert response.status == 201


STAYS = r"/(stream|changes|lives/\{live_id\}/events)$"
"""Connections that stay open for as long as their client wants: Schemathesis would wait for their end."""


async def run_schemathesis(folder: Path, examples: int) -> subprocess.CompletedProcess[str]:
    async with running_server("valkey") as server, await RedisStore.open(server.address) as store:
        await register(store, 4, capacity=1_000, pool="0")
        async with (
            replicas(server.address, "d1", DHSCHED_DISPATCH_WAIT_MAX_S="0.1") as [replica],
            Deployment(server.address.url()) as behind,
        ):
            await (await behind.infer("c1")).until_ready()
            await prepare(replica.url)
            (folder / "schemathesis.toml").write_text(CONFIG)
            command = [
                *(sys.executable, "-m", "schemathesis.cli", "--config-file", str(folder / "schemathesis.toml"), "run"),
                *(f"{replica.url}/openapi.json", "--max-examples", str(examples), "--seed", "1", "--no-color"),
                *("--checks", "all", "--request-timeout", "10", "--exclude-path-regex", STAYS),
            ]
            return await asyncio.to_thread(
                subprocess.run, command, capture_output=True, text=True, check=False, cwd=folder
            )


@pytest.mark.release
async def test_the_served_document_holds(tmp_path: Path) -> None:
    done = await run_schemathesis(tmp_path, 20)
    assert done.returncode == 0, done.stdout[-8_000:] + done.stderr[-2_000:]


@pytest.mark.long
async def test_the_served_document_holds_for_longer(tmp_path: Path) -> None:
    done = await run_schemathesis(tmp_path, 200)
    assert done.returncode == 0, done.stdout[-8_000:] + done.stderr[-2_000:]
