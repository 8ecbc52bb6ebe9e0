"""PushText over a WebSocket: `/v1/lives/{live_id}/stream`, and `/v1/stream` for many lives on one socket.

A frame is a JSON object, or an array of them; replies come as arrays, one per tick of the loop. What is sent is one of

    {"n": 7, "text": "Hello.", "boundary": true}      an item, number 7 of this producer
    {"text": "Hello."}                                an item without a number
    {"token": "Hel"}                                  a piece of text, to be joined with what follows

each with `kind` and `config` as in a POST, and with `live` on `/v1/stream`. Many may be in flight; the replies of one
live are in the order in which it was sent to. Numbered items are exact: `?producer=NAME` and n say which item it is,
so after a lost connection a client sends again from the last reply and nothing is doubled, left out or reordered.
Tokens are joined up to a sentence's end, for at most `join_ms`, and while the item before is being stored; `tokens`
in the reply counts those of this connection that are stored. They have no numbers, so what was in flight when a
connection broke is unknown to the client.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import deque

import msgspec
import structlog
from aiohttp import WSCloseCode, WSMsgType, web

from dhsched.access.callers import Caller
from dhsched.client.models.input import Answer, Push
from dhsched.errors import DhschedError
from dhsched.infer.context import InferContext, payload_of, refusal
from dhsched.infer.joining import Joined, Joiner
from dhsched.links.messages import PUSH_FRAME_BYTES_MAX, PUSHES_MAX, TURN_MESSAGES
from dhsched.links.outbox import Outbox, abort_if_failed, hang_up
from dhsched.ownership import outcomes as o
from dhsched.ownership.items import unmarked
from dhsched.store.steps.redis import Append
from dhsched.types import check_id
from dhsched.web import Problem, caller_of, problem_from, upgrade
from dhsched.web.sockets import ServedSocket

log = structlog.get_logger(__name__)

LINES_MAX = 10_000  # Lives of one socket.
GOODBYE_S = 1.0  # For the last answers of a stream that is closed.
STREAM_HEARTBEAT_S = 20.0  # Clients that read their replies only now and then answer late.
UNSET = msgspec.UNSET


_frames = msgspec.json.Decoder(list[Push] | Push)
_TEXTS = re.compile(r'"(?:[^"\\]|\\.)*+"?', re.DOTALL)
"""A text in JSON. One that does not end is one too: else each quote in it would be tried as a beginning, to the end."""


def read_pushes(frame: str | bytes) -> list[Push]:
    """What a frame holds. It is counted before it is decoded, which would build all of it first."""
    try:
        text = frame if isinstance(frame, str) else frame.decode()
        # A brace is an object, unless it is in a text.
        if text.count("{") > PUSHES_MAX and (items := _TEXTS.sub("", text).count("{")) > PUSHES_MAX:
            detail = f"the frame has {items} items and objects in them, at most {PUSHES_MAX} are taken; send fewer"
            raise Problem("TOO_LARGE", detail, items_max=PUSHES_MAX)
        pushes = _frames.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Problem("BAD_REQUEST", f"the frame cannot be read: {error}") from None
    return pushes if isinstance(pushes, list) else [pushes]


def routes(context: InferContext) -> list[web.RouteDef]:
    async def serve(request: web.Request) -> web.StreamResponse:
        try:
            live_id = request.match_info.get("live_id", "")
            if live_id:
                context.live(caller_of(request), live_id)
            producer = request.query.get("producer", "")
            if producer:
                check_id(producer, "producer")
            if context.streams >= context.settings.streams_max:
                raise Problem("BUSY", f"{context.streams} streams and watchers are open, as many as are taken")
        except DhschedError as error:
            problem = problem_from(error) or Problem("INTERNAL", str(error))
            return problem.response()
        context.streams += 1
        try:
            return await StreamPeer(context, caller_of(request), live_id, producer).serve(request)
        finally:
            context.streams -= 1

    return [
        web.get("/v1/lives/{live_id}/stream", serve, name="push_stream"),
        web.get("/v1/stream", serve, name="push_streams"),
    ]


class Entry:
    """One reply that is owed, in its place."""

    __slots__ = ("answer", "began", "done", "line", "peer")

    def __init__(self, peer: StreamPeer, line: Line, answer: Answer) -> None:
        self.peer = peer
        self.line = line
        self.answer = answer
        self.began = time.perf_counter()
        self.done = False

    def settle(self, outcome: o.AppendOutcome | DhschedError) -> None:
        self.peer.settle(self, outcome)


class Line:
    """One live on one socket: the replies it is owed, in order, and what joins its tokens."""

    __slots__ = ("entries", "joiner", "live", "live_id")

    def __init__(self, live_id: str, live: str) -> None:
        self.live_id = live_id
        self.live = live
        self.entries: deque[Entry] = deque()
        self.joiner: Joiner[Entry] | None = None


class StreamPeer:
    """One socket."""

    def __init__(self, context: InferContext, caller: Caller, live_id: str, producer: str) -> None:
        self._context = context
        self._caller = caller
        self._live_id = live_id
        self._producer = producer
        self._lines: dict[str, Line] = {}
        self._in_flight = 0
        self._room = asyncio.Event()
        self._outbox: Outbox

    async def serve(self, request: web.Request) -> web.StreamResponse:
        socket = await upgrade(request, heartbeat_s=STREAM_HEARTBEAT_S, frame_bytes_max=PUSH_FRAME_BYTES_MAX)
        if socket is None:
            return web.Response()

        async def send(frame: bytes) -> None:
            await socket.send_str(frame.decode())

        self._outbox = Outbox(send, encode=msgspec.json.encode)
        sending = asyncio.create_task(self._outbox.run())
        abort_if_failed(sending, request.transport)
        try:
            with (
                self._context.open_socket(socket, request.transport),
                self._context.service.open_while(self._caller, request),
            ):
                async for message in socket:
                    if message.type not in (WSMsgType.TEXT, WSMsgType.BINARY):
                        break
                    if not await self._hear(message.data):
                        await self._end(socket, sending)
                        break
        finally:
            for line in self._lines.values():
                if line.joiner is not None:
                    line.joiner.close()
            await hang_up(socket, sending, request.transport)
        return socket

    async def _wait_for_room(self) -> None:
        """A client that does not read its replies, or sends faster than we store, is not read from."""
        while self._in_flight >= self._context.settings.stream_in_flight_max or self._outbox.full:
            self._room.clear()
            # Replies leave the outbox without a word to us, so look now and then as well.
            try:
                await asyncio.wait_for(self._room.wait(), 0.05)
            except TimeoutError:
                continue

    async def _wait_for_rate(self, items: int) -> None:
        """A client whose key is used too often is not read from; its items were taken, so nothing is left out."""
        gate = self._context.service.gate
        wait_s = 0.0 if gate is None else gate.slow(self._caller, items)
        if wait_s > 0:
            await asyncio.sleep(wait_s)

    async def _end(self, socket: ServedSocket, sending: asyncio.Task[None]) -> None:
        """Say what is left to say, then close with the code of a frame that is too long."""
        self._outbox.finish()
        await asyncio.wait((sending,), timeout=GOODBYE_S)
        await socket.close(code=WSCloseCode.MESSAGE_TOO_BIG)

    async def _hear(self, frame: str | bytes) -> bool:
        """Take everything in a frame, a turn's worth at a time; False if the connection must end."""
        try:
            pushes = read_pushes(frame)
        except Problem as problem:
            self._outbox.put(Answer(self._live_id, problem=problem.document()))
            await self._wait_for_rate(1)
            return problem.code != "TOO_LARGE"
        for first in range(0, len(pushes), TURN_MESSAGES):
            turn = pushes[first : first + TURN_MESSAGES]
            for push in turn:
                try:
                    self._push(push)
                except DhschedError as error:
                    self._refuse(push, error)
            if first + TURN_MESSAGES < len(pushes):
                await asyncio.sleep(0)
            await self._wait_for_rate(len(turn))
            await self._wait_for_room()
        return True

    def _refuse(self, push: Push, error: DhschedError) -> None:
        problem = problem_from(error) or Problem("INTERNAL", str(error))
        live_id = push.live if isinstance(push.live, str) else self._live_id
        answer = Answer(live_id, n=push.n, problem=problem.document())
        line = self._lines.get(live_id)
        if line is None:
            self._outbox.put(answer)
        else:
            self._owe(line, answer).done = True
            self._answer(line)

    def _push(self, push: Push) -> None:
        context = self._context
        line = self._line(push)
        context.check_room()
        if isinstance(push.token, str):
            self._joiner(line).token(push.token)
            return
        payload = payload_of(push.kind, push.text, push.config, context.settings.text_bytes_max)
        if push.n and not self._producer:
            raise Problem("BAD_REQUEST", "numbered items need ?producer=NAME on the socket's URL", field="$.n")
        if not push.n or line.joiner is not None:
            # Behind the tokens that wait, so that nothing overtakes them.
            self._joiner(line).item(push.kind, payload, push.boundary, (self._producer, push.n))
            return
        entry = self._owe(line, Answer(line.live_id, n=push.n))
        # The hot path: one callback per item, no task and no future.
        item = unmarked(push.kind, payload, push.boundary)
        context.pulls.append_soon(Append(line.live, item, self._producer, push.n), entry.settle)

    def _line(self, push: Push) -> Line:
        live_id = push.live if isinstance(push.live, str) else self._live_id
        line = self._lines.get(live_id)
        if line is None:
            if not live_id or (self._live_id and live_id != self._live_id):
                raise Problem("BAD_REQUEST", "name the live: `live` on /v1/stream, nothing else on a live's own stream")
            if len(self._lines) >= LINES_MAX:
                raise Problem("BUSY", f"one socket serves {LINES_MAX} lives; open another one")
            line = self._lines[live_id] = Line(live_id, self._context.live(self._caller, live_id))
        return line

    def _owe(self, line: Line, answer: Answer) -> Entry:
        entry = Entry(self, line, answer)
        line.entries.append(entry)
        self._in_flight += 1
        return entry

    # -- replies

    def settle(self, entry: Entry, outcome: o.AppendOutcome | DhschedError) -> None:
        """What became of an item, in its place."""
        line = entry.line
        if isinstance(outcome, DhschedError):
            self._failed(line, entry, outcome)
            return
        answer = entry.answer
        if isinstance(outcome, o.Appended):
            answer.seq = outcome.seq
        elif isinstance(outcome, o.Duplicate):
            answer.duplicate = True
        else:
            problem = refusal(line.live_id, outcome)
            answer.problem = problem.document() if problem else None
        entry.done = True
        self._context.metrics.pushed(outcome, entry.began)
        self._answer(line)

    def _failed(self, line: Line, entry: Entry, error: DhschedError) -> None:
        problem = problem_from(error) or Problem("INTERNAL", str(error))
        entry.answer.problem = problem.document()
        entry.done = True
        self._answer(line)

    def _answer(self, line: Line) -> None:
        """Everything at the front that is done."""
        entries = line.entries
        while entries and entries[0].done:
            self._outbox.put(entries.popleft().answer)
            self._in_flight -= 1
        self._room.set()

    # -- tokens

    def _joiner(self, line: Line) -> Joiner[Entry]:
        if line.joiner is None:
            line.joiner = Joiner(
                self._context,
                line.live,
                owe=lambda n: self._owe(line, Answer(line.live_id, n=n)),
                done=self._joined,
            )
        return line.joiner

    def _joined(self, entry: Entry, joined: Joined, result: o.AppendOutcome | DhschedError) -> None:
        if not isinstance(result, DhschedError):
            entry.answer.tokens = joined.tokens_so_far
        self.settle(entry, result)
