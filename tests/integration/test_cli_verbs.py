"""The verbs of people, against a served replica: what they print, and how they fail."""

import asyncio
import json
import logging
from collections.abc import Iterator
from functools import partial
from typing import Any

import jwt
import pytest
import structlog
from typer.testing import CliRunner

from dhsched import cli
from dhsched.errors import DhschedError
from dhsched.ownership.items import stored
from dhsched.store.link.address import Address
from tests.harness.servers import empty_server
from tests.harness.serving import serving


@pytest.fixture(autouse=True)
def logs_elsewhere() -> Iterator[None]:
    """The replica logs in this process, and its lines are not what a verb prints."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.reset_defaults()


async def test_every_verb() -> None:
    async with empty_server("valkey") as server, serving(server.address) as api:
        url = f"http://127.0.0.1:{api.client.port}"

        async def dhsched(*words: str) -> str:
            env = {"DHSCHED_URL": url, "BROWSER": "true"}
            result = await asyncio.to_thread(CliRunner().invoke, cli.app, [*words], env=env)
            if isinstance(result.exception, DhschedError):
                raise result.exception
            assert result.exit_code == 0, result.output
            return result.output

        async def document(*words: str) -> Any:
            return json.loads(await dhsched(*words, "--json"))

        await dhsched("pool", "put", "gpu", "--region", "eu", "--label", "fast")
        await dhsched("digital-id", "put", "anna", "--pool", "gpu:1", "--require", "fast")
        assert (await document("digital-id", "get", "anna"))["config"]["pools"] == [{"pool": "gpu", "tier": 1}]
        [a, b] = await api.workers(2, capacity=10)
        made = await document("live", "create", "anna", "--id", "L", "--metadata", '{"a": 1}', "--explain")
        assert made["worker"] in (a, b) and made["explanation"]["policy"] == "emptiest"
        assert (await document("live", "get", "L"))["metadata"] == {"a": 1}
        for name in ("P", "Q"):
            lifetime = ("--idle", "30m", "--max", "none")
            await dhsched(
                "live", "create", "anna", "--id", name, "--label", "user=7", "--label", f"n={name}", *lifetime
            )
        assert (await document("live", "get", "P"))["idle_s"] == 1800
        assert [row["live_id"] for row in (await document("live", "ls", "--label", "user=7"))["lives"]] == ["P", "Q"]
        assert (await document("live", "set", "P", "--label", "n=P", "--metadata", "{}"))["labels"] == ["n=P"]
        assert (await document("live", "ls", "--label", "user=7", "--idle", "1h", "--stalled"))["lives"] == []
        assert (await document("live", "end", "--label", "user=7", "--yes"))["live_ids"] == ["Q"]
        assert "0 lives ended" in await dhsched("live", "end", "--label", "user=7")
        await dhsched("live", "end", "P")
        for name in ("P", "Q"):
            on = (await document("live", "get", name))["worker"]
            await api.context.store.depart(worker=on, live=f"default/{name}", number=1)  # No agent is there to say so.
        opened = await dhsched("live", "create", "anna", "--id", "shown", "--open", "--room-url", "http://r:1/")
        assert "http://r:1/live/shown#token=" in opened
        assert granted(opened) == ({"watch", "say", "interrupt"}, "")
        linked = await dhsched("live", "watch-link", "shown", "--say", "--identity", "Zoë", "--ttl", "60")
        assert linked.startswith("http://127.0.0.1:7402/live/shown#token=") and granted(linked) == (
            {"watch", "say"},
            "Zoë",
        )
        shown = (await document("live", "get", "shown"))["worker"]
        await dhsched("live", "end", "shown")
        await api.context.store.depart(worker=shown, live="default/shown", number=1)  # There is no agent to say so.
        moved = await document("live", "reassign", "L")
        assert moved["epoch"] == 2 and moved["worker"] != made["worker"]
        assert (await document("live", "reassign", "L", "--to", moved["worker"]))["epoch"] == 3
        assert [row["live_id"] for row in (await document("live", "ls", "--worker", moved["worker"]))["lives"]] == ["L"]
        assert len((await document("live", "history", "L"))["generations"]) == 3
        assert (await document("worker", "cordon", a))["mode"] == "cordoned"
        assert [row["worker"] for row in (await document("worker", "ls", "--status", "cordoned"))["workers"]] == [a]
        assert (await document("worker", "uncordon", a))["mode"] == "ready"
        assert [each["kind"] for each in (await document("events"))["events"]] == [
            "worker_cordoned",
            "worker_uncordoned",
        ]
        assert await document("recoveries") == {"recoveries": []}
        letters = [stored("text", text, False) for text in (b"one", b"two")]
        await api.context.store.link.call("RPUSH", api.context.store.keys.of("dead", "default/L"), *letters)
        letters = (await document("dead-letters", "L"))["items"]
        assert [letter["text"] for letter in letters] == ["one", "two"]
        assert (await document("dead-letters", "L", "--push", letters[0]["id"]))["seq"] == 1
        await dhsched("dead-letters", "L", "--drop", letters[1]["id"])
        assert (await document("dead-letters", "L"))["items"] == []
        [empty] = [worker for worker in (a, b) if worker != moved["worker"]]
        asked = await document("worker", "drain", moved["worker"], "--deadline", "90", "--boundary-wait", "5")
        assert (asked["mode"], asked["lives"], asked["boundary_wait_s"]) == ("draining", 1, 5)
        assert 80 < asked["deadline_in_s"] <= 90
        assert "L" in await dhsched("worker", "drained", moved["worker"])
        assert (await document("worker", "undrain", moved["worker"]))["mode"] == "ready"
        await api.context.store.depart(worker=empty, live="default/L", number=made["epoch"])
        assert (await document("worker", "drain", empty, "--wait"))["done"]
        assert (await document("worker", "undrain", empty))["mode"] == "ready"
        for words in (
            *(("live", "ls"), ("live", "get", "L"), ("live", "why", "L"), ("live", "history", "L")),
            *(("worker", "ls"), ("worker", "get", a), ("pool", "ls"), ("pool", "get", "gpu")),
            *(("digital-id", "ls"), ("digital-id", "get", "anna")),
        ):
            assert words[-1].partition("#")[0] in await dhsched(*words) or words[1] == "ls"
        with pytest.raises(DhschedError, match=r"is in use.*\(IN_USE\)"):
            await dhsched("pool", "rm", "gpu")
        assert (await document("live", "end", "L"))["state"] == "ended"
        given = ("--lives", "3", "--streams", "4", "--waiting", "5", "--rate", "6.5", "--pending-bytes", "7")
        await dhsched("tenant", "set", "acme", *given)
        limits = {"lives_max": 3, "streams_max": 4, "waiting_max": 5, "rate_per_s": 6.5, "pending_bytes_max": 7}
        assert (await document("tenant", "get", "acme"))["config"] == limits
        assert (await document("tenant", "ls"))["tenants"] == [{"name": "acme", "config": limits}]
        assert (await document("tenant", "usage", "acme"))["limits"] == limits
        await dhsched("tenant", "rm", "acme")
        await dhsched("digital-id", "rm", "anna")
        await dhsched("pool", "rm", "gpu", "--force")
        with pytest.raises(DhschedError, match=r"DigitalID anna does not exist.*\(NOT_FOUND\)"):
            await dhsched("live", "create", "anna")


def granted(link: str) -> tuple[set[str], str]:
    """The grants and the identity of the viewer token in a link."""
    claims = jwt.decode(link.strip().rpartition("#token=")[2], options={"verify_signature": False})
    return {*claims["grants"].split()}, claims["sub"]


def test_a_server_that_is_not_there_is_one_sentence() -> None:
    result = CliRunner().invoke(cli.app, ["live", "ls", "--url", "http://127.0.0.1:1"])
    assert isinstance(result.exception, DhschedError)
    assert str(result.exception).startswith("cannot reach Dispatch at http://127.0.0.1:1")
    assert "dhsched run dispatch" in str(result.exception)


async def test_why_says_first_who_won_and_by_what_then_who_lost() -> None:
    async with empty_server("valkey") as server, serving(server.address) as api, serving(server.address) as other:
        await api.configure()
        workers = await api.workers(4, capacity=4)
        assert (await api.create("L"))[0] == 201
        urls = ",".join(f"http://127.0.0.1:{each.client.port}" for each in (other, api))
        result = await asyncio.to_thread(CliRunner().invoke, cli.app, ["why", "L", "--url", urls])
        assert result.exit_code == 0, result.output
        lines = result.output.splitlines()
        _, document = await api("GET", "/v1/lives/L/why")
        [owner, *_] = [row["worker"] for row in (await api("GET", "/v1/workers"))[1]["workers"] if row["load"]]
        count = len(document["explanation"]["candidates"])
        assert lines[1].startswith(f"chosen: {owner} of Pool gpu at 1/4 (0/4 before): the lowest load share of {count}")
        assert "as it was decided" in lines[0] and "policy" in lines[0], "the replica that decided is found"
        lost = [line.split()[0] for line in lines[2:] if line.startswith("w") and "load share" in line]
        assert lost and owner not in lost and {*lost} <= {*workers}
        for n in range(15):
            assert (await api.create(f"M{n}"))[0] == 201
        assert (await api.create("N"))[1]["code"] == "FULL"
        result = await asyncio.to_thread(CliRunner().invoke, cli.app, ["why", "N", "--url", urls])
        assert result.output.splitlines()[1].startswith("chosen: no Worker"), result.output
        assert "refused: FULL at 4/4" in result.output


async def test_the_store_by_its_verbs(server: Address) -> None:
    async with serving(server) as api:
        await api.configure()
        url = f"http://127.0.0.1:{api.client.port}"

        async def dhsched(*words: str, answer: str = "") -> Any:
            run = partial(CliRunner().invoke, cli.app, [*words], env={"DHSCHED_URL": url}, input=answer)
            return await asyncio.to_thread(run)

        status = (await dhsched("store", "status")).output
        home = api.context.store.homes.home[:8]
        assert home in status and "term 1" in status and "nothing that d1 knows of" in status
        assert "replicas=N" in status and max(map(len, status.splitlines())) <= 120
        assert json.loads((await dhsched("store", "status", "--json")).output)["homes"][-1]["home"] == home
        refused = await dhsched("store", "new-term", answer="n\n")
        assert refused.exit_code == 1 and "placed anew" in refused.output and api.context.fleet.term == 1
        begun = await dhsched("store", "new-term", "--yes", "--reason", "a test", "--json")
        assert json.loads(begun.output)["term"] == 2 and api.context.fleet.term == 2
