"""Pushes many items over one WebSocket, exactly once each and in order, whatever happens to the connection.

The stream is a producer with a name of its own and numbers its items. Items without an answer are kept; after a lost
connection they are sent again, to another controller if need be, and the store knows each number: nothing is doubled,
left out or reordered. Names are passed on from stream to stream (producers.py).

A store that fails over may have lost items that it had answered. Its next answer then is GAP, with the last number that
it has, and the stream sends the lost ones again: it keeps the last KEPT_MAX items for that. `lost` counts those that
were lost and not kept any more.

A live remembers a limited number of producers. A stream that finds no place among them stores its items one at a time,
each with a request id: slower, and as exact.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, Self

import aiohttp
import msgspec

from dhsched.client.calls import AGAIN, CONNECT_S, words
from dhsched.client.http import NO_ANSWER, Replicas, open_socket
from dhsched.client.models.base import UNSET
from dhsched.client.models.input import Answer, Push, Pushed, PushText
from dhsched.client.producers import Producers, new_producer
from dhsched.client.sentences import Sentences
from dhsched.errors import BadValue, DhschedError, NotMinted, Refused, Unreachable
from dhsched.links.json_bounds import excess
from dhsched.links.messages import PUSH_FRAME_BYTES_MAX, PUSHES_MAX
from dhsched.tasks import cancel
from dhsched.types import Kind

HEARTBEAT_S = 5.0
SETTLE_S = 6.0
"""After this time a controller has dropped what a lost connection sent: nothing is stored any more."""
KEPT_MAX = 1_000  # Answered items that are kept, to be sent again if the store loses them; and at most so many bytes:
KEPT_BYTES_MAX = 1_048_576
SLOWER = frozenset({"TOO_MANY_PENDING", "QUOTA"})
"""Codes of an item that is refused because too much was sent before it."""
PAUSES = AGAIN | SLOWER | {"GAP"}
"""Codes of an item that is not stored but may be later: after a reconnect, this and all later items are sent again."""
_answers = msgspec.json.Decoder(list[Answer])


class _Item:
    """One item, without an answer yet or kept."""

    __slots__ = ("push", "size_bytes", "stored")

    def __init__(self, push: Push, stored: asyncio.Future[Pushed], size_bytes: int) -> None:
        self.push = push
        self.stored = stored
        self.size_bytes = size_bytes


class Stream:
    """Items for one live. `push` waits until the item is stored; `send` does not wait, and `flush` waits for all.

    An item that is refused for good (the live has ended, the text is too large) ends the stream: later items must not
    overtake it. A full queue is waited for, up to the client's deadline.
    """

    def __init__(
        self,
        replicas: Replicas,
        live_id: str,
        producers: Producers,
        *,
        in_flight_max: int,
        deadline_s: float,
    ) -> None:
        self.live_id = live_id
        self.lost = 0
        """Items that were stored, that the store has lost, and that could not be sent again."""
        self._replicas = replicas
        self._deadline_s = deadline_s
        self._in_flight_max = in_flight_max
        self._producers = producers
        self._producer = producers.take(live_id)
        self._known = False  # Whether the store has an item of this stream.
        self._unsure = False  # Whether items that were sent on a lost connection may yet be stored.
        self._one_by_one = False
        self._unanswered: deque[_Item] = deque()
        self._kept: deque[_Item] = deque()
        self._kept_bytes = 0
        self._changed = asyncio.Condition()
        self._well = 0.0  # When an item was last answered, or the first of those without an answer was sent.
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self._trouble = ""
        self._failed: DhschedError | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._joined = Sentences()

    async def __aenter__(self) -> Self:
        self._keeper = asyncio.create_task(self._keep(), name=f"stream {self.live_id}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for the items in flight, unless the block failed."""
        try:
            if kind is None:
                await self.flush()
        finally:
            await cancel(self._keeper)
            if self._failed is None and not self._unanswered and not self._one_by_one:
                self._producers.leave(self.live_id, self._producer)
            self._fail(Unreachable(f"the stream to live {self.live_id} was closed"))

    async def push(
        self, text: str = "", *, kind: Kind = "text", boundary: bool = False, config: dict[str, Any] | None = None
    ) -> Pushed:
        """Store one item, and wait until it is stored."""
        return await (await self.send(text, kind=kind, boundary=boundary, config=config))

    async def send(
        self, text: str = "", *, kind: Kind = "text", boundary: bool = False, config: dict[str, Any] | None = None
    ) -> asyncio.Future[Pushed]:
        """Send one item; return a future that is done once the item is stored. Wait only if too many are in flight."""
        await self._send_rest()
        return await self._send(text, kind=kind, boundary=boundary, config=config)

    async def token(self, token: str) -> None:
        """Send a token of a language model: tokens are joined here, and each whole sentence is an item, with a
        boundary. `flush`, the next item and the end of the block send what is left."""
        for sentence in self._joined.add(token):
            await self._send(sentence, boundary=True)

    async def _send_rest(self) -> None:
        if rest := self._joined.rest():
            await self._send(rest, boundary=True)

    async def _send(
        self, text: str, *, kind: Kind = "text", boundary: bool = False, config: dict[str, Any] | None = None
    ) -> asyncio.Future[Pushed]:
        async with self._changed:
            await self._changed.wait_for(lambda: self._failed or len(self._unanswered) < self._in_flight_max)
            if self._failed:
                raise self._failed
            push = Push(
                n=self._producer.n + 1,
                text=text,
                kind=kind,
                boundary=boundary,
                config=UNSET if config is None else config,
            )
            if len(encoded := msgspec.json.encode(push)) > PUSH_FRAME_BYTES_MAX - 2:
                raise BadValue(f"an item has {len(encoded)} bytes; send at most {PUSH_FRAME_BYTES_MAX - 2}")
            self._producer.n += 1
            item = _Item(push, asyncio.get_running_loop().create_future(), len(encoded))
            if not self._unanswered:
                self._well = asyncio.get_running_loop().time()
            self._unanswered.append(item)
            if self._one_by_one:
                self._changed.notify_all()
            await self._transmit([encoded])
        return item.stored

    async def flush(self) -> None:
        """Wait until everything sent is stored."""
        await self._send_rest()
        async with self._changed:
            await self._changed.wait_for(lambda: self._failed or not self._unanswered)
            if self._failed and self._unanswered:
                raise self._failed

    async def _transmit(self, items: Iterable[bytes]) -> None:
        """Send now, if there is a connection; the next connection repeats what is lost."""
        if self._socket is not None:
            with contextlib.suppress(aiohttp.ClientError, ConnectionError):
                for frame in frames_of(items):
                    await self._socket.send_str(frame)

    async def _keep(self) -> None:
        """Keep a connection, and replace it when it is lost; fail if items wait for `deadline_s` and none is stored."""
        loop = asyncio.get_running_loop()
        tries = 0
        while self._failed is None:
            if self._one_by_one:
                await asyncio.sleep(SETTLE_S if self._unsure else 0)
                await self._store_one_by_one()
                break
            url = self._replicas.url
            self._trouble = "the connection was closed"
            try:
                async with await open_socket(
                    self._replicas.http,
                    f"{url}/v1/lives/{self.live_id}/stream",
                    within_s=CONNECT_S,
                    params={"producer": self._producer.name},
                    headers=await self._replicas.access(url),
                    heartbeat=HEARTBEAT_S,
                ) as socket:
                    answered = await self._serve(socket)
                if answered:
                    tries = 0
            except aiohttp.WSServerHandshakeError as error:
                if error.status < 500 and error.status != 429:
                    self._fail(Refused(error.status, {"detail": f"stream to live {self.live_id}: {error.message}"}))
                    break
                self._trouble = str(error)
            except NotMinted as error:
                if error.code not in AGAIN:
                    self._fail(error)
                    break
                self._trouble = str(error)
            except NO_ANSWER as error:
                self._unsure = self._unsure or (self._socket is not None and bool(self._unanswered))
                self._trouble = words(error)
            finally:
                self._socket = None
            self._replicas.leave(url)
            pause_s = self._replicas.backoff_s(tries)
            tries += 1
            if self._unanswered and loop.time() + pause_s - self._well > self._deadline_s:
                self._fail(
                    Unreachable(
                        f"stream to live {self.live_id}: nothing was stored for {self._deadline_s:g} s "
                        f"({self._trouble})"
                    )
                )
            await asyncio.sleep(pause_s)
        async with self._changed:
            self._changed.notify_all()

    async def _serve(self, socket: aiohttp.ClientWebSocketResponse) -> bool:
        """Send all items without an answer again, then handle the answers. Return whether there were any."""
        async with self._changed:
            self._socket = socket
            await self._transmit([msgspec.json.encode(item.push) for item in self._unanswered])
        answered = False
        async for message in socket:
            if message.type is not aiohttp.WSMsgType.TEXT:
                break
            for answer in _answers.decode(message.data):
                if not await self._hear(answer):
                    return answered
                answered = True
        self._unsure = self._unsure or bool(self._unanswered)
        return answered

    async def _hear(self, answer: Answer) -> bool:
        """Handle one answer. Return False if the stream must reconnect."""
        if (problem := answer.problem) is not None and self._gives_up_its_name(problem.get("code")):
            return False
        if problem is not None and problem.get("code") in PAUSES:
            if problem.get("code") != "GAP" or not self._takes_back(problem.get("last")):
                self._trouble = str(problem.get("detail"))
            return False
        async with self._changed:
            while self._unanswered and self._unanswered[0].push.n <= answer.n:
                item = self._unanswered.popleft()
                self._keep_item(item)
                if item.stored.done():
                    continue
                if problem is not None and item.push.n == answer.n:
                    item.stored.set_exception(Refused(problem.get("status", 400), problem))
                else:
                    seq = answer.seq or None if item.push.n == answer.n else None
                    again = seq is None or answer.duplicate
                    pushed = Pushed(self.live_id, "", seq, duplicate=again, dropped=answer.dropped if seq else 0)
                    item.stored.set_result(pushed)
            self._known = self._known or problem is None
            self._well = asyncio.get_running_loop().time()
            if problem is not None:
                # The next number would leave a gap, so this producer cannot continue.
                self._fail(Refused(problem.get("status", 400), problem))
                return False
            self._changed.notify_all()
        return True

    def _gives_up_its_name(self, code: object) -> bool:
        """Return whether the store refuses this name and no item of this stream is or can be stored under it."""
        if self._known or (code == "GAP" and self._unsure):
            return False
        if code == "TOO_MANY_PRODUCERS":
            self._one_by_one = True
        elif code == "GAP":
            self._take_new_name()  # The store has forgotten this name, which is of an earlier stream.
        return code in ("TOO_MANY_PRODUCERS", "GAP")

    def _keep_item(self, item: _Item) -> None:
        self._kept.append(item)
        self._kept_bytes += item.size_bytes
        while len(self._kept) > KEPT_MAX or self._kept_bytes > KEPT_BYTES_MAX:
            self._kept_bytes -= self._kept.popleft().size_bytes

    def _takes_back(self, last: object) -> bool:
        """Return whether the store has lost items that it had answered: its last one is `last`. They are sent again, as
        far as they are kept; where some are not, all items are numbered anew, under a new name."""
        first = self._unanswered[0].push.n if self._unanswered else self._producer.n + 1
        if not isinstance(last, int) or not self._known or last + 1 >= first:
            return False
        while self._kept and self._kept[-1].push.n > last:
            item = self._kept.pop()
            self._kept_bytes -= item.size_bytes
            self._unanswered.appendleft(item)
        if missing := self._unanswered[0].push.n - last - 1:
            self.lost += missing
            self._kept.clear()
            self._kept_bytes = 0
            self._take_new_name()
        return True

    def _take_new_name(self) -> None:
        """Number the items that are not stored anew, under a new name."""
        self._producer = new_producer()
        for item in self._unanswered:
            self._producer.n += 1
            item.push.n = self._producer.n

    async def _store_one_by_one(self) -> None:
        """Store the items in order, each before the next is sent. The request id makes a repetition safe."""
        while self._failed is None:
            async with self._changed:
                await self._changed.wait_for(lambda: self._failed or self._unanswered)
                if self._failed:
                    return
                item = self._unanswered[0]
            try:
                pushed = await self._store_one(item.push)
                await self._hear(Answer(self.live_id, n=item.push.n, seq=pushed.seq or 0, dropped=pushed.dropped))
            except Refused as refused:
                problem = {**refused.problem, "status": refused.status}
                await self._hear(Answer(self.live_id, n=item.push.n, problem=problem))
            except DhschedError as error:
                self._fail(error)

    async def _store_one(self, push: Push) -> Pushed:
        loop = asyncio.get_running_loop()
        give_up = loop.time() + self._deadline_s
        body = PushText(push.text, push.kind, push.boundary, push.config, f"{self._producer.name}-{push.n}")
        while True:
            try:
                return await self._replicas.read(Pushed, "POST", "lives", self.live_id, "text", body=body)
            except Refused as refused:
                pause_s = refused.retry_after_s or 1.0
                if refused.code not in SLOWER or loop.time() + pause_s > give_up:
                    raise
            await asyncio.sleep(pause_s)

    def _fail(self, error: DhschedError) -> None:
        if self._failed is None:
            self._failed = error
        for item in self._unanswered:
            if not item.stored.done():
                item.stored.set_exception(self._failed)
                item.stored.exception()  # Marks it as retrieved: the caller may have gone.


def frames_of(items: Iterable[bytes]) -> Iterator[str]:
    """Yield encoded items as JSON arrays within a controller's limits of bytes and of items per frame."""
    frame: list[bytes] = []
    size_bytes = 0
    for item in items:
        if frame and (size_bytes + len(item) + 2 > PUSH_FRAME_BYTES_MAX or len(frame) == PUSHES_MAX):
            yield from _arrays(frame)
            frame, size_bytes = [], 0
        frame.append(item)
        size_bytes += len(item) + 1
    if frame:
        yield from _arrays(frame)


def _arrays(frame: list[bytes]) -> Iterator[str]:
    """Yield the items as one array, or each alone if all of them together have too much in them (json_bounds.py)."""
    together = b"[%b]" % b",".join(frame)
    if excess(together):
        yield from (f"[{item.decode()}]" for item in frame)
    else:
        yield together.decode()
