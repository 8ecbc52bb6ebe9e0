"""Clients of the peers of the input benchmark, each written as a good engineer would write it.

- *bare*: redis-py streams. Frames of items are pipelines of XADD, a batch is one XREADGROUP, its ack one XACK. It moves
  items and nothing else: one stream for the whole Worker, no fence, no deduplication, no queue per live, no trimming.
  This is the least that redis-py can cost.
- *same job*: redis-py with what a team would write instead of dhsched. Each live has a queue and an owner with an
  epoch; the scripts of a few lines below refuse an owner that was replaced, drop an item that was stored already, and
  remove what was consumed. Scripts are pipelined: for frames, for a batch, and for the ack of a batch.
- *NATS*: nats-py on JetStream. Items are published without waiting for each (`publish_async`), a push consumer delivers
  them, and one ack covers a batch. No fence, no deduplication, no queue per live.

A front process (input_peers.py) uses one client for one Worker. Frames that arrive while a pipeline is under way share
the next one: that keeps the items of a live in order, and costs less than a pipeline and a connection per frame.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar

from dhsched.errors import DhschedError

STREAM, GROUP, SUBJECT, OWNER = "input", "worker", "input.worker", "worker"
BATCH = 100  # Items, or lives with items, of one fetch; more wait for the next fetch.
PIPELINE_MAX = 500  # Items of one pipeline; more wait for the next pipeline.
CREDIT = 8  # Items of one live that are with the Worker; more wait for the ack. As in dhsched.
PUBLISHING_MAX = 4_000  # Items published to NATS and not confirmed; further publishes wait.
FETCH_S = 1.0  # A fetch that finds nothing for this long returns nothing.

T = TypeVar("T")
R = TypeVar("R")


class Push(NamedTuple):
    """An item for a live. `n` is its number by this producer."""

    live: str
    n: int
    item: bytes


class Batch(NamedTuple):
    """Items for the Worker. The Worker sends `ticket` back once it has consumed all of them."""

    ticket: Any
    items: list[bytes]


class Peer(Protocol):
    """A client of one of the servers, for the front."""

    async def push(self, pushes: Sequence[Push]) -> None:
        """Store the items. Items of one live are stored in the order of the calls."""

    async def fetch(self) -> Batch:
        """Wait for the next items and return them; possibly a batch without items."""

    async def ack(self, ticket: Any) -> None:
        """Mark the items of a batch as consumed."""

    async def close(self) -> None:
        """Close the connections."""


class Gather(Generic[T, R]):
    """Sends items in order, one pipeline at a time: items that arrive while a pipeline is under way share the next."""

    def __init__(self, send: Callable[[list[T]], Awaitable[list[R]]], most: int = PIPELINE_MAX) -> None:
        """`send` returns a reply for each item. A pipeline has at most `most` items, or those of one `put`."""
        self._send = send
        self._most = most
        self._waiting: list[tuple[Sequence[T], asyncio.Future[list[R]]]] = []
        self._sending: asyncio.Task[None] | None = None

    async def put(self, items: Sequence[T]) -> list[R]:
        """Send the items, all in one pipeline, and return their replies."""
        replies: asyncio.Future[list[R]] = asyncio.get_running_loop().create_future()
        self._waiting.append((items, replies))
        if self._sending is None:
            self._sending = asyncio.create_task(self._run())
        return await replies

    async def _run(self) -> None:
        while self._waiting:
            now = self._next()
            try:
                replies = await self._send([item for items, _ in now for item in items])
            except Exception as error:
                for _, waiting in now:
                    waiting.set_exception(error)
                continue
            at = 0
            for items, waiting in now:
                waiting.set_result(replies[at : at + len(items)])
                at += len(items)
        self._sending = None

    def _next(self) -> list[tuple[Sequence[T], asyncio.Future[list[R]]]]:
        """Take out what the next pipeline carries."""
        count = size = 0
        for items, _ in self._waiting:
            if count and size + len(items) > self._most:
                break
            count, size = count + 1, size + len(items)
        now, self._waiting = self._waiting[:count], self._waiting[count:]
        return now


# -- redis-py


class Redispy:
    """Two connections of redis-py: one for all calls that answer at once, one for the call that waits for items."""

    def __init__(self, url: str) -> None:
        redis = redispy().asyncio
        self._client = redis.Redis.from_url(url)
        self._reader = redis.Redis.from_url(url)

    async def close(self) -> None:
        await self._client.aclose()
        await self._reader.aclose()


class Bare(Redispy):
    """Pipelined streams, and nothing else."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._adding = Gather(self._add)

    @classmethod
    async def open(cls, url: str, _lives: Sequence[str]) -> Self:
        made = cls(url)
        await made._client.xgroup_create(STREAM, GROUP, id="0", mkstream=True)
        return made

    async def push(self, pushes: Sequence[Push]) -> None:
        await self._adding.put(pushes)

    async def _add(self, pushes: list[Push]) -> list[Any]:
        async with self._client.pipeline(transaction=False) as pipe:
            for push in pushes:
                pipe.xadd(STREAM, {"i": push.item})
            added: list[Any] = await pipe.execute()
            return added

    async def fetch(self) -> Batch:
        found: Any = await self._reader.xreadgroup(GROUP, "c1", {STREAM: ">"}, count=BATCH, block=int(FETCH_S * 1000))
        entries = [entry for _, entries in found or [] for entry in entries]
        return Batch([entry for entry, _ in entries], [fields[b"i"] for _, fields in entries])

    async def ack(self, ticket: Any) -> None:
        await self._client.xack(STREAM, GROUP, *ticket)


# Keys of each script: the live's hash (epoch, owner, acked, and the last number of each producer) and its queue. A live
# with items for its owner is in the owner's list `ready`, once: it goes there with the first item of an empty queue,
# and again with an ack that leaves items. So at most one batch of a live is with its Worker.
CLAIM = """
local epoch = redis.call('HINCRBY', KEYS[1], 'epoch', 1)
redis.call('HSET', KEYS[1], 'owner', ARGV[1])
if redis.call('EXISTS', KEYS[2]) == 1 then redis.call('RPUSH', 'ready:' .. ARGV[1], ARGV[2]) end
return epoch
"""
APPEND = """
local known = redis.call('HMGET', KEYS[1], 'owner', ARGV[1])
if tonumber(ARGV[2]) <= tonumber(known[2] or 0) then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
if redis.call('RPUSH', KEYS[2], ARGV[3]) == 1 and known[1] then redis.call('RPUSH', 'ready:' .. known[1], ARGV[4]) end
return 1
"""
TAKE = """
local live = redis.call('HMGET', KEYS[1], 'epoch', 'acked')
if live[1] ~= ARGV[1] then return false end
return {tonumber(live[2] or 0), redis.call('LRANGE', KEYS[2], 0, ARGV[2] - 1)}
"""
ACK = """
local live = redis.call('HMGET', KEYS[1], 'epoch', 'owner', 'acked')
if live[1] ~= ARGV[1] then return 0 end
local count = ARGV[2] - (live[3] or 0)
if count <= 0 then return 1 end
redis.call('LTRIM', KEYS[2], count, -1)
redis.call('HSET', KEYS[1], 'acked', ARGV[2])
if redis.call('EXISTS', KEYS[2]) == 1 then redis.call('RPUSH', 'ready:' .. live[2], ARGV[3]) end
return 1
"""


class SameJob(Redispy):
    """Pipelined scripts: a queue per live, a fence, deduplication by the producer's number, trimming."""

    def __init__(self, url: str, owner: str = OWNER) -> None:
        super().__init__(url)
        self.refused: set[str] = set()
        """Lives that have another owner now, as a take or an ack has shown."""
        self.duplicates = 0
        self._appending = Gather(self._append)
        self._owner = owner
        self._epochs: dict[str, int] = {}
        self._shas: dict[str, str] = {}

    @classmethod
    async def open(cls, url: str, lives: Sequence[str], owner: str = OWNER) -> Self:
        """Connect, and become the owner of these lives."""
        made = cls(url, owner)
        for script in (CLAIM, APPEND, TAKE, ACK):
            made._shas[script] = await made._client.script_load(script)
        epochs = await made._scripts(CLAIM, [(live, owner, live) for live in lives])
        made._epochs = dict(zip(lives, epochs, strict=True))
        return made

    async def push(self, pushes: Sequence[Push]) -> None:
        self.duplicates += (await self._appending.put(pushes)).count(0)

    async def _append(self, pushes: list[Push]) -> list[Any]:
        return await self._scripts(APPEND, [(live, "producer", n, item, live) for live, n, item in pushes])

    async def fetch(self) -> Batch:
        found: Any = await self._reader.blmpop(FETCH_S, 1, f"ready:{self._owner}", direction="LEFT", count=BATCH)
        lives = [live.decode() for live in found[1]] if found else []
        taken = await self._scripts(TAKE, [(live, self._epochs[live], CREDIT) for live in lives])
        ticket, items = [], []
        for live, some in zip(lives, taken, strict=True):
            if some is None:
                self.refused.add(live)
                continue
            ticket.append((live, self._epochs[live], some[0] + len(some[1])))
            items += some[1]
        return Batch(ticket, items)

    async def ack(self, ticket: Any) -> None:
        acked = await self._scripts(ACK, [(live, epoch, last, live) for live, epoch, last in ticket])
        self.refused.update(live for (live, _, _), done in zip(ticket, acked, strict=True) if not done)

    async def _scripts(self, script: str, rows: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Run a script for each row, which is a live and the arguments, in one pipeline, and return the replies."""
        if not rows:
            return []
        sha = self._shas[script]
        async with self._client.pipeline(transaction=False) as pipe:
            for live, *arguments in rows:
                pipe.evalsha(sha, 2, f"live:{live}", f"queue:{live}", *arguments)
            replies: list[Any] = await pipe.execute()
            return replies


def redispy() -> Any:
    # redis-py uses hiredis if it is installed, as it is with dhsched; without it the ratio would be unfair to redis-py.
    try:
        import redis.asyncio
    except ImportError as error:
        raise DhschedError(
            "redis-py, a peer of this benchmark, is not installed; pip install 'redis[hiredis]' or 'dhsched[dev]'"
        ) from error
    return redis


# -- NATS


class Nats:
    """publish_async, a push consumer, and one ack per batch."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._stream = client.jetstream(publish_async_max_pending=PUBLISHING_MAX)
        self._publishing = asyncio.Lock()  # Two frames are published one after the other.
        self._delivered: list[Any] = []
        self._some = asyncio.Event()

    @classmethod
    async def open(cls, url: str, _lives: Sequence[str]) -> Self:
        import nats
        from nats.js.api import AckPolicy, ConsumerConfig

        made = cls(await nats.connect(url))
        await made._stream.add_stream(name=STREAM, subjects=[SUBJECT])
        config = ConsumerConfig(ack_policy=AckPolicy.ALL, max_ack_pending=PUBLISHING_MAX)
        await made._stream.subscribe(SUBJECT, durable=GROUP, cb=made._deliver, manual_ack=True, config=config)
        return made

    async def push(self, pushes: Sequence[Push]) -> None:
        # Without `wait_stall`: with it, nats-py starts a task per item, and sends each item in a write of its own.
        async with self._publishing:
            stored = [await self._stream.publish_async(SUBJECT, push.item) for push in pushes]
        for each in stored:
            await each

    async def _deliver(self, message: Any) -> None:
        self._delivered.append(message)
        self._some.set()

    async def fetch(self) -> Batch:
        await self._some.wait()
        messages, self._delivered = self._delivered[:BATCH], self._delivered[BATCH:]
        if not self._delivered:
            self._some.clear()
        return Batch(messages[-1].reply, [message.data for message in messages])

    async def ack(self, ticket: Any) -> None:
        await self._client.publish(ticket, b"+ACK")  # With AckPolicy.ALL, of every item up to this one.

    async def close(self) -> None:
        await self._client.close()


PEERS: dict[str, Callable[[str, Sequence[str]], Awaitable[Peer]]] = {
    "redispy_pipelined": Bare.open,
    "same_job": SameJob.open,
    "nats": Nats.open,
}
