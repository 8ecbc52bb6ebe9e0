"""PullText, the Worker's side: one WebSocket per Infer-Controller, many lives on each.

A live's pull goes to one of the connected controllers, chosen by a hash, so that a Worker's lives are spread and a
controller that comes or goes moves few of them. When a connection is lost its lives pull again elsewhere, from the
last item that arrived; the store makes that the latest pull, so an old socket can add nothing. This client checks the
same: it ignores messages of any pull but the latest, and an item that is neither the next nor an interrupt makes the
live pull again.

A controller that is cut off from the store answers STORE_UNAVAILABLE to every request. After UNAVAILABLE_S of such
answers its lives go to other controllers, if Dispatch answered all reports meanwhile: if Dispatch did not, the store
itself is away, and all Workers would pull all lives anew for nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

import aiohttp
import structlog

from dhsched.errors import BadValue
from dhsched.links.messages import (
    Ack,
    Emit,
    Emitted,
    Ended,
    Goodbye,
    Hello,
    InferSays,
    Items,
    JournalChange,
    Leave,
    Log,
    LogLine,
    Open,
    Opened,
    Problem,
    Pull,
    Pulling,
    Source,
    Stale,
    Welcome,
    read_infer_says,
)
from dhsched.links.outbox import Outbox
from dhsched.links.preference import weight
from dhsched.ownership import items
from dhsched.ownership.journal import Change
from dhsched.tasks import cancel
from dhsched.web.traceparent import traceparent_of
from dhsched.worker.inbox import LiveInfo, SessionInbox
from dhsched.worker.log_lines import LogLines
from dhsched.worker.pull_dial import Dial
from dhsched.worker.session import Emission, Item, Publish, Session

log = structlog.get_logger(__name__)

CONNECT_S = 3.0  # A controller that has sent nothing after this long is dialled again.
BACKOFF_FIRST_S = 0.1  # Wait before the next connection; doubled after each failure, up to:
BACKOFF_MAX_S = 2.0
RETRY_S = 0.25  # Wait before a pull is repeated that its controller could not serve.
UNAVAILABLE = "STORE_UNAVAILABLE"
UNAVAILABLE_S = 2.0  # A controller that answers so for this long is left, while Dispatch answers reports.
UNAVAILABLE_GAP_S = 10.0  # After this long without such an answer a controller has recovered, even if it was idle.
AVOID_S = 30.0  # A controller that was left gets no lives for this long, unless there is no other.

Key = tuple[str, int]


class Over(Exception):
    """The live moved on or ended before its runtime began."""


class Stream:
    """One generation's connection, latest pull and latest ack."""

    __slots__ = (
        "ack_mark",
        "ack_n",
        "ack_saved",
        "connection",
        "has_acked",
        "inbox",
        "opening",
        "over",
        "pull_no",
        "session",
        "wants_pull",
    )

    def __init__(self, inbox: SessionInbox) -> None:
        self.inbox = inbox
        self.session = inbox.session
        self.connection: Connection | None = None
        self.opening: asyncio.Future[LiveInfo] | None = None
        self.wants_pull = False
        self.over = False  # The live has ended, or a later generation: nothing of this one is stored any more.
        self.pull_no = 0
        self.has_acked = False  # Something was acked, or its journal stored without an ack.
        self.ack_n = 0
        self.ack_mark = b""
        self.ack_saved: bytes | None = None

    @property
    def key(self) -> Key:
        return self.session.live, self.session.generation.epoch


class Connection:
    """One WebSocket to one controller."""

    def __init__(self, url: str, outbox: Outbox) -> None:
        self.url = url
        self.outbox = outbox
        self.streams: set[Stream] = set()
        self.leaving = False  # The controller said Goodbye: nothing new goes there.
        self.avoid_until = float("-inf")
        self._unavailable_since: float | None = None
        self._unavailable_at = float("-inf")

    def serves(self) -> None:
        """Note a message that proves that the controller reaches the store."""
        self._unavailable_since = None

    def unavailable_for_s(self, now: float) -> float:
        """Note an answer "unavailable"; return for how many seconds the controller has given no other."""
        if self._unavailable_since is None or now - self._unavailable_at > UNAVAILABLE_GAP_S:
            self._unavailable_since = now
        self._unavailable_at = now
        return now - self._unavailable_since


class PullClient:
    """All pulls of one Worker. `on_over` is called with a session whose live is elsewhere or has ended; `answered_s`
    returns for how long Dispatch has answered all reports of this Worker."""

    def __init__(
        self,
        dial: Dial,
        on_over: Callable[[Session], None],
        answered_s: Callable[[], float] = lambda: 0.0,
        log_lines_per_s: float = 0.0,
    ) -> None:
        self.token = ""
        self._dial = dial
        self._on_over = on_over
        self._answered_s = answered_s
        self._streams: dict[Key, Stream] = {}
        self._logs = LogLines(self._send_lines, log_lines_per_s)
        self._connections: dict[str, Connection] = {}
        self._keepers: dict[str, asyncio.Task[None]] = {}
        self._wanted: set[str] = set()

    # -- life

    def use(self, urls: Iterable[str]) -> None:
        """Connect to the controllers `urls`. One that is no longer listed is used until its connection ends."""
        if not (listed := set(urls)):
            return  # Dispatch knows of none; the ones we have may still be there.
        self._wanted = listed
        for url in listed - self._keepers.keys():
            self._keepers[url] = asyncio.create_task(self._keep(url), name=f"pull {url}")

    async def close(self) -> None:
        self._logs.close()
        await cancel(*self._keepers.values())
        self._keepers.clear()

    @property
    def connected(self) -> int:
        return len(self._connections)

    # -- for sessions and the agent

    def open(self, inbox: SessionInbox) -> asyncio.Future[LiveInfo]:
        """Return a future of the live's details, claiming nothing. Its error is Over if the live is elsewhere now."""
        stream = Stream(inbox)
        self._streams[stream.key] = stream
        stream.opening = asyncio.get_running_loop().create_future()
        self._assign(stream)
        return stream.opening

    def claim(self, session: Session) -> None:
        if (stream := self._streams.get((session.live, session.generation.epoch))) is not None:
            stream.wants_pull = True
            self._ask(stream)

    def ack(self, session: Session, n: int, mark: bytes, saved: bytes | None, journal: Change | None) -> None:
        if (stream := self._streams.get((session.live, session.generation.epoch))) is None:
            return
        stream.has_acked = True
        if n:
            stream.ack_n, stream.ack_mark = n, mark
        if saved is not None:
            stream.ack_saved = saved
        if stream.connection is not None and stream.pull_no:
            self._ack(stream, saved, journal)

    def _ack(self, stream: Stream, saved: bytes | None, journal: Change | None) -> None:
        ack = Ack(*stream.key, stream.ack_n, saved, stream.ack_mark)
        if journal is not None:
            ack.journal = JournalChange(journal.drop, journal.first, [*journal.entries])
        self._say(stream, ack, len(saved or b"") + (0 if journal is None else journal.bytes))

    def emit(self, session: Session, emission: Emission) -> None:
        stream = self._streams.get((session.live, session.generation.epoch))
        if stream is not None and stream.over:
            stream.inbox.stored(emission.n)  # It is lost: nobody need wait for it.
        elif stream is not None and stream.pull_no:
            self._say_emits(stream, (emission,))

    def log(self, session: Session, source: Source, text: str | bytes) -> None:
        if (key := (session.live, session.generation.epoch)) in self._streams:
            self._logs.add(key, source, text)

    def _send_lines(self, key: Key, lines: list[LogLine]) -> bool:
        stream = self._streams.get(key)
        if stream is None or stream.connection is None or stream.connection.outbox.full:
            return False
        self._say(stream, Log(*key, lines), sum(len(line.text) for line in lines))
        return True

    def leave(self, session: Session) -> None:
        """Forget the session, whose runtime has ended, and tell its controller."""
        key = (session.live, session.generation.epoch)
        self._logs.leave(key)
        if (stream := self._streams.pop(key, None)) is None:
            return
        self._say(stream, Leave(session.live, session.generation.epoch))
        if stream.connection is not None:
            stream.connection.streams.discard(stream)
        if stream.opening is not None and not stream.opening.done():
            stream.opening.cancel()

    # -- which controller

    def _assign(self, stream: Stream) -> None:
        """Choose a connection for the stream and send its request there; without a connection, the stream waits."""
        if stream.connection is not None:
            stream.connection.streams.discard(stream)
        open_ones = self._serving() or [each for each in self._connections.values() if not each.leaving]
        stream.connection = (
            max(open_ones, key=lambda each: weight(stream.session.live, each.url)) if open_ones else None
        )
        if stream.connection is not None:
            stream.connection.streams.add(stream)
            self._ask(stream)

    def _serving(self) -> list[Connection]:
        now = asyncio.get_running_loop().time()
        return [each for each in self._connections.values() if not each.leaving and each.avoid_until <= now]

    def _ask(self, stream: Stream) -> None:
        live, epoch = stream.key
        outbox = None if stream.connection is None else stream.connection.outbox
        if stream.opening is not None and not stream.opening.done():
            if outbox is not None:
                outbox.put(Open(live, epoch))
        elif stream.wants_pull:
            # The earlier pull is not the latest any more: ignore what still arrives from it.
            stream.pull_no = 0
            if outbox is not None:
                inbox = stream.inbox
                outbox.put(Pull(live, epoch, *inbox.accepted, inbox.wants_journal, inbox.told_device))

    def _ask_later(self, stream: Stream) -> None:
        def ask() -> None:
            if self._streams.get(stream.key) is stream and stream.connection is connection:
                self._ask(stream)

        connection = stream.connection
        asyncio.get_running_loop().call_later(RETRY_S, ask)

    def _say(self, stream: Stream, message: Ack | Emit | Log | Leave, payload_bytes: int = 0) -> None:
        if stream.connection is not None:
            stream.connection.outbox.put(message, payload_bytes)

    def _say_emits(self, stream: Stream, emissions: Iterable[Emission]) -> None:
        """Send messages of the runtime; with each, the last one before all that wait is known to be stored."""
        live, epoch = stream.key
        for emission in emissions:
            told = stream.inbox.unstored[0].n - 1
            n, name, data, item = emission
            self._say(stream, Emit(live, epoch, n, name, data, told, item), len(data))

    # -- connections

    async def _keep(self, url: str) -> None:
        """Connect to one controller, again and again, as long as Dispatch lists it."""
        backoff_s = BACKOFF_FIRST_S
        try:
            while url in self._wanted:
                if await self._connect(url):
                    backoff_s = BACKOFF_FIRST_S
                await asyncio.sleep(backoff_s)
                backoff_s = min(backoff_s * 2, BACKOFF_MAX_S)
        finally:
            self._keepers.pop(url, None)

    async def _connect(self, url: str) -> bool:
        """Serve one connection from its beginning to its end; return whether the controller welcomed this Worker."""
        try:
            async with asyncio.timeout(CONNECT_S) as connecting, self._dial(url) as socket:
                connection = Connection(url, Outbox(socket.send_bytes))
                connection.outbox.put(Hello(self.token, takes_traces=True))
                sending = asyncio.create_task(connection.outbox.run())
                try:
                    async for message in socket:
                        if message.type is not aiohttp.WSMsgType.BINARY:
                            break
                        connecting.reschedule(None)
                        for said in read_infer_says(message.data):
                            self._hear(connection, said)
                        if connection.leaving and not connection.streams:
                            break
                finally:
                    served = self._connections.get(url) is connection
                    self._lost(connection)
                    await cancel(sending)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            log.warning("no connection to controller", controller=url, reason=str(error) or type(error).__name__)
            return False
        except BadValue as error:
            log.error("controller sent a message that cannot be read", controller=url, reason=str(error))
            return False
        return served

    def _lost(self, connection: Connection) -> None:
        if self._connections.get(connection.url) is connection:
            del self._connections[connection.url]
        for stream in [*connection.streams]:
            self._assign(stream)
        connection.streams.clear()

    # -- messages from a controller

    def _hear(self, connection: Connection, said: InferSays) -> None:
        if not isinstance(said, Problem | Welcome | Goodbye):
            connection.serves()
        match said:
            case Items():
                self._items(connection, said)
            case Pulling():
                self._pulling(connection, said)
            case Opened():
                stream = self._streams.get((said.live, said.epoch))
                if stream is not None and stream.opening is not None and not stream.opening.done():
                    stream.opening.set_result(
                        LiveInfo(said.digital_id, said.room, said.metadata, said.config, said.saved)
                    )
            case Emitted():
                if (stream := self._streams.get((said.live, said.epoch))) is not None:
                    stream.inbox.stored(said.n)
                    if said.again and stream.connection is connection and stream.pull_no:
                        self._say_emits(stream, stream.inbox.unstored)
            case Stale() | Ended():
                self._over(said.live, said.epoch)
            case Welcome():
                self._connections[connection.url] = connection
                for stream in [each for each in self._streams.values() if each.connection is None]:
                    self._assign(stream)
            case Goodbye():
                connection.leaving = True
                for stream in [*connection.streams]:
                    self._assign(stream)
            case Problem():
                self._problem(connection, said)

    def _items(self, connection: Connection, said: Items) -> None:
        stream = self._streams.get((said.live, said.epoch))
        if stream is None or stream.connection is not connection or stream.pull_no != said.pull_no:
            return
        for seq, stored in enumerate(said.items, said.first):
            if not stream.inbox.accept(item_of(seq, stored)):
                self._ask(stream)
                return

    def _pulling(self, connection: Connection, said: Pulling) -> None:
        stream = self._streams.get((said.live, said.epoch))
        if stream is None or stream.connection is not connection or said.pull_no <= stream.pull_no:
            return
        stream.pull_no = said.pull_no
        stream.session.publish = Publish(said.room_url, said.publish_token) if said.publish_token else None
        if said.journal is not None:
            stream.inbox.journal_read(said.journal_last, said.journal)
        unstored = stream.inbox.unstored
        if not stream.inbox.accepted[0]:
            # Whether input had begun or not: its start may differ now, if the store has lost history.
            stream.inbox.begins_after(said.after, said.config, said.saved)
        if stream.has_acked:
            # The last ack may have been lost with its connection.
            self._ack(stream, stream.ack_saved, stream.inbox.journal_since(said.journal_last))
        if unstored:
            self._say_emits(stream, unstored)

    def _over(self, live: str, epoch: int) -> None:
        if (stream := self._streams.get((live, epoch))) is None:
            return
        stream.wants_pull, stream.over = False, True
        for emission in stream.inbox.unstored[-1:]:
            stream.inbox.stored(emission.n)
        if stream.opening is not None and not stream.opening.done():
            stream.opening.set_exception(Over())
        self._on_over(stream.session)

    def _problem(self, connection: Connection, said: Problem) -> None:
        log.warning("controller refused", controller=connection.url, code=said.code, reason=said.detail, live=said.live)
        if said.code == UNAVAILABLE and self._leave_unavailable(connection):
            return
        stream = self._streams.get((said.live, said.epoch)) if said.live else None
        if stream is not None and stream.connection is connection:
            self._ask_later(stream)

    def _leave_unavailable(self, connection: Connection) -> bool:
        """Give the controller's lives to others if it alone is cut off from the store; return whether that was done."""
        now = asyncio.get_running_loop().time()
        unavailable_s = connection.unavailable_for_s(now)
        others = [each for each in self._serving() if each is not connection]
        if unavailable_s < UNAVAILABLE_S or self._answered_s() < UNAVAILABLE_S or not others:
            return False
        lives = len(connection.streams)
        log.warning("leaving a controller that is cut off from the store", controller=connection.url, lives=lives)
        connection.avoid_until = now + AVOID_S
        for stream in [*connection.streams]:
            self._assign(stream)
        return True


def item_of(seq: int, stored: bytes) -> Item:
    """Return a stored item as a session gets it."""
    read = items.read(stored)
    traceparent = traceparent_of(read.trace) if read.trace else ""
    return Item(seq, read.kind, read.payload, read.boundary, read.config, items.mark_of(stored), traceparent)
