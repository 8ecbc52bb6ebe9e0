"""The store of a virtual run: a server that speaks RESP3 on the net, with the keyspace and the scripts behind it.

It is a node like others: freezing it is a pause, cutting it off is a partition. What a step was asked and answered goes
to `on_step`, in the order in which the store ran it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from hashlib import sha1
from random import Random
from typing import Any

import hiredis

from dhsched.store.keys import Keys
from dhsched.store.steps import redis as redis_store
from dhsched.store.steps import scripts
from tests.virtual.entropy import EPOCH_S
from tests.virtual.keyspace import OK, Keyspace, Scored, shown
from tests.virtual.loop import Node, VirtualLoop
from tests.virtual.lua import LuaError, Scripts
from tests.virtual.moving import REPLY, SlotIsMoved
from tests.virtual.net import Net

PORT = 6379
ONLY_CELL = "main"
OnStep = Callable[[str, int, list[bytes], bytes], None]
"""Takes a script's name, the store's time, its arguments and its reply as RESP."""
WRITES = frozenset({b"HSET", b"HSETNX", b"SET", b"XADD", b"ZADD"})  # Plain commands that a full server refuses.


class StoreServer:
    """See the module."""

    def __init__(self, loop: VirtualLoop, net: Net, host: str, seed: int, cell: str = "") -> None:
        """`cell` is the name of one cell of several."""
        self.cell, self.keys = cell, Keys(cell or ONLY_CELL)
        name = f"store {cell}" if cell else "store"
        self.node = Node(loop, name, host)
        self.offset_ms = 0
        self._loop, self._net = loop, net
        self.keyspace = self._make_keyspace()
        self.on_step: OnStep = lambda name, now, argv, reply: None
        self.calls = 0
        self._rng = Random(f"{name} {seed}")
        self._scripts = self._make_scripts()
        self._names = {script.sha1.encode(): name for name, script in all_scripts().items()}
        self._clients: dict[Client, None] = {}
        self._channels: dict[bytes, dict[Client, None]] = {}
        self.keyspace.publish = self._publish
        self.keyspace.replid = self._new_name()
        net.listen(self.node, lambda: Client(self), host, PORT)

    def _make_keyspace(self) -> Keyspace:
        return Keyspace(self.now_ms)

    def _make_scripts(self) -> Any:
        """What runs the scripts: a server that was started again has none."""
        return Scripts(self.keyspace)

    def _plain(self, name: bytes, args: list[bytes]) -> bytes:
        """Run a plain command; return its reply as RESP."""
        return said(self.keyspace.run(name, args))

    @property
    def url(self) -> str:
        return f"redis://{self.node.host}:{PORT}"

    def now_ms(self) -> int:
        return int((EPOCH_S + self._loop.now) * 1000) + self.offset_ms

    # -- faults

    def become_another(self, kept: Any, *, hang_up: bool) -> None:
        """Go on as another primary, with what was kept, or with all data where nothing was. Connections are closed, or
        stay, as with a server that was demoted and promoted again."""
        if kept is not None:
            self.keyspace.restore(kept)
        self.keyspace.replid = self._new_name()
        if hang_up:
            self._scripts = self._make_scripts()
            for client in [*self._clients]:
                client.transport.abort()

    def _new_name(self) -> bytes:
        return b"%040x" % self._rng.getrandbits(160)

    # -- clients

    def answer(self, client: Client, command: list[bytes]) -> bytes | None:
        name = command[0].upper()
        if name == b"EVALSHA":
            return self._evaluate(command)
        match name:
            case b"HELLO":
                role = {
                    b"server": b"redis",
                    b"version": b"7.2.4",
                    b"proto": 3,
                    b"mode": b"standalone",
                    b"role": b"master",
                }
                return said(role)
            case b"SCRIPT":
                sha = sha1(command[2]).hexdigest().encode()
                self._scripts.load(sha, command[2])
                return said(sha)
            case b"SSUBSCRIBE" | b"SUNSUBSCRIBE":
                return self._subscribe(client, name, command[1])
            case b"PING":
                return b"+PONG\r\n"
            case b"CONFIG":
                return said({b"appendfsync": b"everysec", b"min-replicas-to-write": b"0"})
        if self.keyspace.full and name in WRITES:
            return b"-OOM command not allowed when used memory > 'maxmemory'.\r\n"
        try:
            return self._plain(name, command[1:])
        except SlotIsMoved:
            return REPLY

    def connected(self, client: Client) -> None:
        self._clients[client] = None

    def left(self, client: Client) -> None:
        self._clients.pop(client, None)
        for subscribers in self._channels.values():
            subscribers.pop(client, None)

    def _evaluate(self, command: list[bytes]) -> bytes:
        sha, count = command[1], int(command[2])
        if sha not in self._scripts:
            return b"-NOSCRIPT No matching script.\r\n"
        argv = command[3 + count :]
        try:
            reply: bytes = self._scripts.run(sha, command[3 : 3 + count], argv)
        except SlotIsMoved:
            return REPLY
        except LuaError as error:
            return b"-ERR " + str(error).replace("\r", " ").replace("\n", " ").encode() + b"\r\n"
        self.calls += 1
        if not reply.startswith(b"-"):
            self.on_step(self._names[sha], self.now_ms(), argv, reply)
        return reply

    def _subscribe(self, client: Client, name: bytes, channel: bytes) -> bytes:
        subscribers = self._channels.setdefault(channel, {})
        if name == b"SSUBSCRIBE":
            subscribers[client] = None
        else:
            subscribers.pop(client, None)
        return b">3\r\n" + said(name.lower()) + said(channel) + b":1\r\n"

    def _publish(self, channel: bytes, message: bytes) -> int:
        subscribers = self._channels.get(channel, {})
        push = b">3\r\n$8\r\nsmessage\r\n" + said(channel) + said(message)
        for client in subscribers:
            client.transport.write(push)
        return len(subscribers)


class Client(asyncio.Protocol):
    """One connection to the server."""

    transport: asyncio.Transport

    def __init__(self, server: StoreServer) -> None:
        self._server = server
        self._reader = hiredis.Reader()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self._server.connected(self)

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        replies = []
        while (command := self._reader.gets()) is not False:
            replies.append(self._server.answer(self, command))
        self.transport.write(b"".join(reply for reply in replies if reply))

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.left(self)


def said(value: Any) -> bytes:
    """A reply as RESP3."""
    match value:
        case None:
            return b"_\r\n"
        case bool():
            raise TypeError("no command replies with a boolean")
        case int():
            return b":%d\r\n" % value
        case float():
            return b"," + shown(value) + b"\r\n"
        case bytes():
            return b"$%d\r\n%b\r\n" % (len(value), value)
        case Scored(member, score):
            return b"*2\r\n" + said(member) + said(score)
        case dict():
            return b"%%%d\r\n" % len(value) + b"".join(said(key) + said(each) for key, each in value.items())
        case list():
            return b"*%d\r\n" % len(value) + b"".join(map(said, value))
    assert value is OK
    return b"+OK\r\n"


def all_scripts() -> Mapping[str, scripts.Script]:
    """The steps, with a mutant where one is in its place, and the scripts around them."""
    steps: Mapping[str, scripts.Script] = getattr(redis_store, "default_scripts")()  # noqa: B009
    return {**scripts.scripts_around(), **steps}
