"""Every message that a Worker sends on its links, to Dispatch and to an Infer-Controller, with wrong values."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from typing import Any, get_args

import aiohttp

from dhsched.dispatch.worker_link import PATH as LINK
from dhsched.infer.pull import PATH as PULL
from dhsched.links import messages as m
from dhsched.tokens import Tokens
from tests.chaos.hostile import ANSWER_S, CONNECTIONS, LATER_S, MARK, REPEATING_S, Hostile, Prey, known_of, known_values
from tests.chaos.hostile_values import (
    EVIL,
    NO_FIELD,
    Row,
    as_array,
    fields_of,
    is_lent,
    rows_of,
    shares,
    with_field,
    wrong,
)

FRAME = {
    m.Depart: 16,
    m.Exit: 1,
    m.Open: 256,
    m.Pull: 256,
    m.Ack: 256,
    m.Emit: 256,
    m.Log: 256,
    m.Leave: 256,
    m.Hello: 256,
}
"""Messages of one kind in a frame; of others REPEATS_MAX, because more end a Worker's link. A frame ends with its first
exit, and a long frame of departs would seldom be worked on to its end: other links of the boot close its own."""
GREETINGS = (m.Register, m.Resume, m.Hello)
WORKER_MESSAGES: dict[str, type[m.Message]] = {
    **{f"link {each.__name__.lower()}": each for each in get_args(m.FromWorker)},
    **{f"pull {each.__name__.lower()}": each for each in get_args(m.PullSays)},
}
"""Every message that a Worker sends on a link, by the name of its rows."""


def worker_rows() -> list[Row]:
    return [row for name, kind in WORKER_MESSAGES.items() for row in rows_of(name, kind)]


class Links:
    """The links of the hostile Worker."""

    def __init__(self, hostile: Hostile) -> None:
        self.rows = worker_rows()
        self._hostile = hostile
        self._one_link = asyncio.Lock()

    async def send(self, row: Row, kind: str) -> int:
        """Send one cell; count it once it is on its way."""
        message = WORKER_MESSAGES[row.message]
        prey = self._hostile.prey(message)
        given = valid(message, prey, self._hostile.tokens)
        type_ = fields_of(message)[row.field]
        value = wrong(kind, type_, known_of(row.field, prey, self._hostile.tokens, given.get(row.field)))
        attacks = [with_field(given, row.field, value)]
        if kind == "another's" and row.field != NO_FIELD:
            attacks.append(of_other(message, prey, given, self._hostile.tokens))
        for attack in attacks:
            await self._hostile.pace()
            came = await self.say(message, [as_array(message, attack)], prey)
            self._hostile.coverage.count(row, kind, came)
        return len(attacks)

    async def repeat(self, message: str, times: int) -> int:
        """Send the same valid message up to `times` times, on a few connections; return how often."""
        kind = WORKER_MESSAGES[message]
        prey = self._hostile.prey(kind)
        one = as_array(kind, valid(kind, prey, self._hostile.tokens))
        before = self._hostile.coverage.repeats_of(message)
        if kind in get_args(m.FromWorker):
            # A boot has one link to a replica: a second one would close the first.
            async with self._one_link:
                await self._burst(message, one, prey, times)
        else:
            async with asyncio.TaskGroup() as group:
                for share in shares(times, CONNECTIONS):
                    group.create_task(self._burst(message, one, prey, share))
        return self._hostile.coverage.repeats_of(message) - before

    async def _burst(self, message: str, one: list[Any], prey: Prey, times: int) -> None:
        """Send the message so often, on one connection after the other, or until it is time for others."""
        kind, until = WORKER_MESSAGES[message], time.monotonic() + REPEATING_S
        size = FRAME.get(kind, m.REPEATS_MAX)
        with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):
            while times > 0 and time.monotonic() < until:
                async with self._connected(kind, prey) as socket:
                    while times > 0 and not socket.closed and time.monotonic() < until:
                        count = min(size, times)
                        await self._hostile.pace(count)
                        await socket.send_bytes(m.encode([one] * count))
                        came = await self._answers(socket, kind)
                        # Who was cut off cannot know whether the frame was read: it is sent again.
                        self._hostile.coverage.repeated(message, came, count, counts=came != "closed")
                        times -= count if came != "closed" else 0

    @contextlib.asynccontextmanager
    async def _connected(self, kind: type[m.Message], prey: Prey) -> Any:
        """A connection that has greeted as the hostile boot, unless the message is a greeting itself."""
        to_infer = kind in get_args(m.PullSays)
        urls = self._hostile.deployment.infer if to_infer else self._hostile.deployment.dispatch
        own = self._hostile.tokens.issue(prey.boot)
        shown = (
            self._hostile.deployment.access.headers("hostile")
            if kind is m.Register
            else {"Authorization": f"Bearer {own}"}
        )
        url = self._hostile.rng.choice(urls) + (PULL if to_infer else LINK)
        async with asyncio.timeout(ANSWER_S):
            socket = await self._hostile.http.ws_connect(url, headers=shown, autoping=False, max_msg_size=0)
        try:
            if kind not in GREETINGS:
                await socket.send_bytes(m.encode([m.Hello(own) if to_infer else m.Resume(own)]))
            yield socket
        finally:
            with contextlib.suppress(TimeoutError, OSError):
                await asyncio.wait_for(socket.close(), ANSWER_S)

    async def say(self, kind: type[m.Message], said: list[Any], prey: Prey) -> str:
        """Send messages on a new connection; after a greeting also what its sender may do, and another may not."""
        if kind in GREETINGS:
            live, epoch = prey.other.live, prey.other.record.epoch
            follow: list[m.Message] = [m.Depart(live, epoch, EVIL)]
            if kind is m.Hello:
                follow = [m.Pull(live, epoch, 0, MARK), m.Ack(live, epoch, prey.other.record.appended, MARK, MARK)]
            said = [*said, *follow]
        async with self._connected(kind, prey) as socket:
            await socket.send_bytes(m.encode(said))
            return await self._answers(socket, kind)

    async def _answers(self, socket: aiohttp.ClientWebSocketResponse, kind: type[m.Message]) -> str:
        """Read what is answered before a ping is; return a word for it."""
        read: Callable[[bytes], list[Any]] = m.read_infer_says if kind in get_args(m.PullSays) else m.read_from_dispatch
        word = "ignored"
        try:
            if kind in (m.Open, m.Pull, m.Hello):
                await asyncio.sleep(LATER_S)  # These are answered beside the connection, after the ping would be.
            await socket.ping()
            async with asyncio.timeout(ANSWER_S):
                async for message in socket:
                    if message.type is aiohttp.WSMsgType.PONG:
                        return word
                    if message.type is aiohttp.WSMsgType.PING:
                        await socket.pong(message.data)
                    elif message.type is aiohttp.WSMsgType.BINARY:
                        for said in read(message.data):
                            self._check(said)
                            if isinstance(said, m.Problem | m.Stale | m.Gone):
                                word = "refused"
                            elif word == "ignored" and not isinstance(said, m.Welcome | m.Wake):
                                word = "answered"
        except (TimeoutError, ConnectionError, OSError):
            pass
        return "refused" if word == "refused" else "closed" if socket.closed else word

    def _check(self, said: Any) -> None:
        """What a Worker is told of a live is of a live that it has, or had a moment ago."""
        if isinstance(said, m.Opened | m.Pulling | m.Items) and not is_lent(said.live):
            self._hostile.tell(f"the hostile Worker was sent {type(said).__name__} of {said.live}")


# -- values


def valid(kind: type[m.Message], prey: Prey, tokens: Tokens) -> dict[str, Any]:
    """A valid message of this kind of the hostile Worker, as a map. A field that this module does not know of has the
    value of its default."""
    known = {name: value.own for name, value in known_values(prey, tokens).items()}
    defaults = {name: default_of(kind, name) for name in kind.__struct_fields__}
    return {name: known.get(name, defaults[name]) for name in kind.__struct_fields__}


def default_of(kind: type[m.Message], name: str) -> Any:
    names, defaults = kind.__struct_fields__, kind.__struct_defaults__
    at = names.index(name) - (len(names) - len(defaults))
    return defaults[at] if at >= 0 and not callable(defaults[at]) else None


def of_other(kind: type[m.Message], prey: Prey, given: Mapping[str, Any], tokens: Tokens) -> dict[str, Any]:
    """The message as the other Worker would send it, as far as values of others are known."""
    known = known_values(prey, tokens)
    return {
        name: known[name].anothers if name in known and name not in ("reason", "saved", "mark", "data") else value
        for name, value in given.items()
    } | {name: MARK for name in ("mark",) if name in given and kind is m.Pull}
