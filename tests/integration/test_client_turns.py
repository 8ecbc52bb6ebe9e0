"""A chat app as docs/guides/client.md shows it: a stream for every turn, for as many turns as there are."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dhsched.client import Client, stream
from tests.harness.clients import client_of, cut_off
from tests.harness.fleet import Record, fleet, until

SENTENCES = ("one", "two")


async def turns(client: Client, live: str, who: str, count: int) -> list[str]:
    """The documented loop: each answer of the model is a stream of its own. What was said."""
    said = []
    for turn in range(count):
        async with client.stream(live) as answer:
            for sentence in SENTENCES:
                said.append(f"{who} {turn} {sentence}")
                await answer.send(said[-1], boundary=True)
    return said


async def heard(record: Record, live: str, expected: list[str]) -> list[str]:
    await until(lambda: len(record.texts(live)) >= len(expected), "all that was said", 60)
    return record.texts(live)


async def test_a_hundred_turns_of_two_apps_at_once(tmp_path: Path) -> None:
    record = Record()
    async with fleet(tmp_path, infer=2) as f:
        await f.start_worker(record, "w1")
        await f.create("L")
        async with client_of(f) as one, client_of(f) as other:
            said = await asyncio.gather(turns(one, "L", "a", 100), turns(other, "L", "b", 100))
        texts = await heard(record, "L", [*said[0], *said[1]])
        for who, expected in zip("ab", said, strict=True):
            assert [text for text in texts if text.startswith(who)] == expected, "in order, each once"
        assert len(texts) == 400


async def test_clients_that_come_and_go(tmp_path: Path) -> None:
    """Each process of an app is a new client. More of them than a live remembers producers still get through."""
    record = Record()
    async with fleet(tmp_path) as f:
        await f.start_worker(record, "w1")
        await f.create("L")
        said: list[str] = []
        for n in range(20):
            async with client_of(f) as client:
                said += await turns(client, "L", f"client {n}", 2)
        assert await heard(record, "L", said) == said


async def test_many_clients_over_connections_that_break(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exactly once holds also for those that found no place among the producers."""
    monkeypatch.setattr(stream, "SETTLE_S", 0.2)
    record = Record()
    async with fleet(tmp_path) as f, cut_off(f.infer[0], nth=3) as cut:
        await f.start_worker(record, "w1")
        await f.create("L")

        async def one(n: int) -> list[str]:
            async with Client(f.dispatch, [cut.url], deadline_s=30) as client:
                return await turns(client, "L", f"client-{n:02}", 5)

        said = await asyncio.gather(*(one(n) for n in range(12)))
        texts = await heard(record, "L", [text for each in said for text in each])
        assert sorted(texts) == sorted(text for each in said for text in each)
        for n, expected in enumerate(said):
            assert [text for text in texts if text.startswith(f"client-{n:02}")] == expected
        assert cut.cut > 0


async def test_an_id_that_is_used_again_is_a_new_live_to_the_client(tmp_path: Path) -> None:
    """What the client remembers of the first life is not known in the second."""
    record = Record()
    async with fleet(tmp_path) as f, client_of(f) as client:
        await f.start_worker(record, "w1")
        await f.create("L")
        said = await turns(client, "L", "first", 2)
        assert await heard(record, "L", said) == said
        store = f.controllers[0].context.store
        fields = await store.link.call("HKEYS", store.keys.of("live", "default/L"))
        for field in fields:
            if field.startswith(b"from:"):
                await store.link.call("HDEL", store.keys.of("live", "default/L"), field)
        said += await turns(client, "L", "second", 2)
        assert await heard(record, "L", said) == said
