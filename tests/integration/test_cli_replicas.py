"""Verbs that are given several replicas: one that is dead, hung or dies halfway is left for the next."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from dhsched import cli
from dhsched.cli.remote import URL
from dhsched.cli.sample import UpSettings
from dhsched.client import Client, Refused, calls
from dhsched.errors import DhschedError
from tests.harness.fleet import Record, fleet, until
from tests.harness.keyed import keyed
from tests.harness.processes import start
from tests.harness.servers import empty_server
from tests.harness.serving import Api, serving

DEAD = "http://127.0.0.1:1"  # Nobody listens there, and only root could.
Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def dhsched(*words: str, env: dict[str, str] | None = None) -> Result:
    return await asyncio.to_thread(CliRunner().invoke, cli.app, [*words], env=env)


def done(result: Result) -> str:
    if result.exception is not None:
        raise result.exception
    return result.output


@asynccontextmanager
async def replica(api: Api) -> AsyncIterator[str]:
    await api.configure()
    await api.workers(2, capacity=4)
    yield f"http://127.0.0.1:{api.client.port}"


@asynccontextmanager
async def answering(answer: Answer) -> AsyncIterator[str]:
    """A server of ours that answers like this."""
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


async def say(writer: asyncio.StreamWriter, status: int, document: Any) -> None:
    body = json.dumps(document).encode()
    head = f"HTTP/1.1 {status} x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    writer.write(f"{head}Connection: close\r\n\r\n".encode() + body)
    await writer.drain()
    writer.close()


def passing_on(port: int) -> Answer:
    """It does what it is asked, and dies before it has said so."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(int(line.split(b":")[1]) for line in head.splitlines() if line.lower().startswith(b"content-len"))
        there, out = await asyncio.open_connection("127.0.0.1", port)
        out.write(head + await reader.readexactly(length))
        await there.readuntil(b"\r\n\r\n")
        out.close()
        writer.close()

    return answer


VERBS = (
    *("live ls", "live get L", "live history L", "live why L", "why L", "dead-letters L", "live reassign L"),
    *("worker ls", "pool ls", "pool get gpu", "pool put other", "pool rm other", "digital-id ls", "recoveries"),
    *("events", "top --once", "live end L"),
)


async def test_every_verb_goes_on_at_the_replica_that_serves() -> None:
    async with empty_server("valkey") as server, serving(server.address) as api, replica(api) as url:
        urls = f"{DEAD}, {url}/"
        done(await dhsched("live", "create", "anna", "--id", "L", "--url", urls))
        for verb in VERBS:
            done(await dhsched(*verb.split(), "--url", urls))
        assert "pools" in done(await dhsched("top", "--json", env={"DHSCHED_URL": urls}))
        found = json.loads((await dhsched("doctor", "--url", urls, "--json")).stdout)
        states = {each["found"]: each["state"] for each in found["findings"] if each["check"] == "dispatch"}
        assert states[f"d1 is ready at {url}"] == "ok"
        assert [state for said, state in states.items() if DEAD in said] == ["warning"]


async def test_when_none_answers_one_sentence_names_them_all() -> None:
    other = "http://127.0.0.1:2"
    for verb in (*VERBS, "events --follow", "live create anna"):
        failed = (await dhsched(*verb.split(), "--url", f"{DEAD},{other}")).exception
        assert isinstance(failed, DhschedError), (verb, failed)
        assert DEAD in str(failed) and other in str(failed) and "--url" in str(failed), (verb, failed)
        assert "\n" not in str(failed)
    for verb in ("live push L hello", "live interrupt L", "live watch L"):
        failed = (await dhsched(*verb.split(), "--infer", f"{DEAD},{other}")).exception
        assert isinstance(failed, DhschedError), (verb, failed)
        assert DEAD in str(failed) and other in str(failed) and "--infer" in str(failed), (verb, failed)


@pytest.mark.parametrize(
    "url",
    ["127.0.0.1:7400", "http://a,ftp://b", "http://127.0.0.1:x", "http://[::1", "http://a:99999", "http://", " , "],
)
@pytest.mark.parametrize(
    "verb", ["live ls --url", "events --follow --url", "doctor --url", "key mint --url", "live push L x --infer"]
)
async def test_a_malformed_address_is_one_sentence(verb: str, url: str) -> None:
    failed = (await dhsched(*verb.split(), url, env={"DHSCHED_KEY": "k"})).exception
    assert isinstance(failed, DhschedError), failed
    assert "address" in str(failed) and "\n" not in str(failed)


@pytest.mark.release
async def test_a_hung_replica_is_left_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "TRY_S", 2.0)

    async def silence(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with (
        empty_server("valkey") as server,
        serving(server.address) as api,
        replica(api) as url,
        answering(silence) as hung,
    ):
        assert "w0#1" in done(await dhsched("worker", "ls", "--url", f"{hung},{url}"))


async def test_a_create_whose_answer_was_lost_makes_one_live() -> None:
    async with (
        empty_server("valkey") as server,
        serving(server.address) as api,
        replica(api) as url,
        answering(passing_on(api.client.port or 0)) as dying,
    ):
        made = json.loads(done(await dhsched("live", "create", "anna", "--url", f"{dying},{url}", "--json")))
        lives = (await api("GET", "/v1/lives"))[1]["lives"]
        assert [row["live_id"] for row in lives] == [made["live_id"]]
        moved = json.loads(done(await dhsched("live", "reassign", made["live_id"], "--url", f"{url}", "--json")))
        epoch = str(moved["epoch"])
        words = ("live", "reassign", made["live_id"], "--epoch", epoch, "--url", f"{dying},{url}", "--json")
        assert json.loads(done(await dhsched(*words)))["epoch"] == moved["epoch"] + 1


async def test_what_must_not_be_done_twice_is_not_repeated() -> None:
    """A key that nobody was shown is a key too many. One that surely was not made is asked for at the next replica."""
    async with (
        empty_server("valkey") as server,
        serving(server.address) as api,
        answering(passing_on(api.client.port or 0)) as dying,
    ):
        url = f"http://127.0.0.1:{api.client.port}"
        create = ("key", "create", "--role", "app", "--url")
        done(await dhsched(*create, f"{DEAD},{url}"))
        assert len((await api("GET", "/v1/keys"))[1]["keys"]) == 1
        failed = (await dhsched(*create, f"{dying},{url}")).exception
        assert isinstance(failed, DhschedError) and dying in str(failed)
        assert "whether it was done is not known" in str(failed)
        assert len((await api("GET", "/v1/keys"))[1]["keys"]) == 2


async def test_a_replica_that_cannot_mint_is_left_for_the_next() -> None:
    async def unready(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await say(writer, 503, {"code": "NOT_READY", "detail": "no store yet"})

    async with (
        empty_server("valkey") as server,
        keyed(server.address) as k,
        answering(unready) as starting,
    ):
        url, key = f"http://127.0.0.1:{k.api.client.port}", await k.key("admin")
        done(await dhsched("live", "ls", "--url", f"{starting},{url}", env={"DHSCHED_KEY": key}))
        async with Client([starting, url], key=key) as client:
            assert [each async for each in client.lives()] == []
        failed = (await dhsched("live", "ls", "--url", starting, env={"DHSCHED_KEY": key})).exception
        assert isinstance(failed, DhschedError) and "NOT_READY" in str(failed)


async def test_events_go_on_at_the_next_replica_where_they_broke_off(tmp_path: Path) -> None:
    async with empty_server("valkey") as server, serving(server.address) as kept, AsyncExitStack() as stack:
        first = await stack.enter_async_context(serving(server.address, name="d2"))
        [worker] = await kept.workers(1, capacity=4)
        urls = ",".join(f"http://127.0.0.1:{api.client.port}" for api in (first, kept))
        following = await start("events", "--follow", "--json", "--url", urls)
        try:
            path = f"/v1/workers/{worker.replace('#', '%23')}"
            assert (await kept("POST", f"{path}/cordon", {}))[0] == 200
            await until(lambda: following.lines, "the first event")
            await stack.aclose()
            assert (await kept("POST", f"{path}/uncordon", {}))[0] == 200
            await until(lambda: len(following.lines) >= 2, "the event after the replica's end")
            assert following.returncode is None
        finally:
            await following.stop()
    assert [line["kind"] for line in following.lines] == ["worker_cordoned", "worker_uncordoned"]


async def test_input_goes_to_the_controller_that_answers(tmp_path: Path) -> None:
    async with fleet(tmp_path) as f:
        record = Record()
        await f.start_worker(record, "w")
        await f.create("L")
        infer = f"{DEAD},{f.infer[0]}"
        watching = await start("live", "watch", "L", "--infer", infer)
        try:
            pushed = json.loads(done(await dhsched("live", "push", "L", "hello", "--infer", infer)))
            assert pushed["seq"] == 1
            await until(lambda: record.texts("L") == ["hello"], "the words")
            done(await dhsched("live", "interrupt", "L", env={"DHSCHED_INFER": infer}))
            await until(lambda: any(line["event"] == "acked" for line in watching.lines), "an event")
        finally:
            await watching.stop()


async def test_a_drain_that_ends_with_its_worker_is_waited_for_without_an_error() -> None:
    """It was empty and has exited: that is the end that was waited for, not a refusal."""
    drain = {"worker": "w#1", "mode": "draining", "status": "draining", "lives": 1, "moved": 0, "left": 1}
    drain |= {"done": False, "reasons": {"PREPARING": 1}, "details": []}

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = (await reader.readuntil(b"\r\n\r\n")).startswith(b"POST")
        await say(writer, 200 if asked else 404, drain if asked else {"code": "NOT_FOUND", "detail": "it is gone"})

    async with answering(answer) as url:
        result = await dhsched("worker", "drain", "w#1", "--wait", "--json", "--url", url)
        assert json.loads(done(result))["status"] == "gone"


def test_the_defaults_are_the_replicas_of_up() -> None:
    ports = [int(url.rpartition(":")[2]) for url in URL.split(",")]
    assert ports == [*UpSettings().dispatch_ports]


@pytest.mark.release
async def test_what_up_prints_works_when_its_first_replica_is_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    up = await start("up", "--any-port", "--workers", "1", "--runtime", "echo")
    try:
        await until(lambda: any("live why" in line for line in up.printed), "a deployment", 60)
        [victim] = [int(line.split()[2]) for line in up.printed if line.strip().startswith("dispatch-1 ")]
        os.kill(victim, signal.SIGKILL)
        [export] = [line.strip() for line in up.printed if line.strip().startswith("export DHSCHED_URL=")]
        for line in [line for line in up.printed if line.strip().startswith("dhsched live")]:
            verb = await asyncio.create_subprocess_shell(
                f"{export}; {line.strip().replace('dhsched', f'{sys.executable} -m dhsched.cli', 1)}",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
            assert verb.stdout is not None
            said = (await verb.stdout.read()).decode()
            assert await verb.wait() == 0, (line, said)
    finally:
        await up.stop()


def test_the_verbs_and_the_client_refuse_alike() -> None:
    from dhsched.cli import remote

    assert vars(remote)["Refused"] is Refused
