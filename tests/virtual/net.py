"""The net of a virtual run: byte streams between nodes, with delays, cuts and connections that one end has forgotten.

A connection is two streams. What one writes is in flight until it is delivered to the other: after a delay, in order,
joined. A cut keeps it in flight, as TCP does that sends again, until the cut is mended or the sender's kernel gives up
(TCP_USER_TIMEOUT as the product sets it, else KERNEL_S). `forget` makes a connection half open: nothing on it arrives
any more, and nobody is told.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextvars import Context
from random import Random
from typing import Any

from tests.virtual.loop import Node, VirtualLoop

KERNEL_S = 900.0  # What Linux takes to give up on data that nobody acknowledges.
CONNECT_S = 130.0  # What Linux takes to give up on a connection that nobody answers.
HIGH_BYTES = 65_536  # asyncio's own: above it the protocol is asked to pause writing.


class Net:
    """All connections, and which nodes cannot reach which."""

    def __init__(self, loop: VirtualLoop, seed: int, delay_s: tuple[float, float]) -> None:
        self.loop = loop
        self.delay_s = delay_s
        self.slow: dict[str, float] = {}
        """Nodes that are slow to reach: seconds more, by host."""
        self.breaks: dict[str, float] = {}
        """Hosts that lose answers: the share of deliveries on connections they opened that break the connection."""
        self._random = Random(f"net {seed}").random
        self.cuts: set[tuple[str, str]] = set()
        """Pairs of hosts: from the first nothing reaches the second."""
        self.open: dict[Stream, None] = {}
        self._listeners: dict[tuple[str, int], Listener] = {}
        self._ports = 20_000
        self._healed: list[asyncio.Future[None]] = []

    # -- what the loop asks

    async def connect(
        self, node: Node, factory: Callable[[], Any], host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        await self._reach(node, host)
        listener = self._listeners.get((host, port))
        if listener is None or listener.node.dead:
            raise ConnectionRefusedError(111, f"nobody listens on {host}:{port}")
        self._ports += 1
        ours = Stream(self, node, node.context(), (node.host, self._ports), (host, port))
        theirs = Stream(self, listener.node, listener.node.context(), (host, port), (node.host, self._ports))
        ours.peer, theirs.peer, ours.opened = theirs, ours, True
        self.open[ours] = self.open[theirs] = None
        self.loop.call_soon(theirs.begin, listener.factory, context=theirs.context)
        protocol = factory()
        ours.set_protocol(protocol)
        protocol.connection_made(ours)
        return ours, protocol

    def listen(self, node: Node, factory: Callable[[], Any], host: str, port: int) -> Listener:
        if port == 0:
            self._ports += 1
            port = self._ports
        if (host, port) in self._listeners:
            raise OSError(98, f"{host}:{port} is in use")
        made = self._listeners[host, port] = Listener(self, node, factory, (host, port))
        return made

    # -- faults

    def cut(self, one: str, other: str, *, both: bool) -> set[tuple[str, str]]:
        """From now on nothing that one host sends reaches the other; return what `mend` takes."""
        made = {(one, other), (other, one)} if both else {(one, other)}
        self.cuts |= made
        return made

    def mend(self, cut: set[tuple[str, str]]) -> None:
        """Take a cut back. What is in flight arrives."""
        self.cuts -= cut
        for stream in [*self.open]:
            stream.go_on()
        healed, self._healed = self._healed, []
        for each in healed:
            if not each.done():
                each.set_result(None)

    def kill(self, node: Node) -> None:
        """Close everything of a node as the kernel does for a process that was killed."""
        for address in [address for address, listener in self._listeners.items() if listener.node is node]:
            del self._listeners[address]
        for stream in [each for each in self.open if each.node is node]:
            stream.hang_up()

    def forget(self, node: Node) -> int:
        """Make every connection of a node half open; return how many there were."""
        found = [each for each in self.open if each.node is node]
        for stream in found:
            stream.forget()
            stream.peer.forget()
        return len(found)

    def stop_listening(self, address: tuple[str, int]) -> None:
        self._listeners.pop(address, None)

    # -- within

    def reaches(self, one: str, other: str) -> bool:
        return (one, other) not in self.cuts

    def delay(self, one: str, other: str) -> float:
        low_s, high_s = self.delay_s
        delay_s = low_s + (high_s - low_s) * self._random()
        if self.slow:
            delay_s += self.slow.get(one, 0.0) + self.slow.get(other, 0.0)
        return delay_s

    def breaks_now(self, host: str) -> bool:
        """Return whether what arrives at a host now is lost with its connection."""
        return host in self.breaks and self._random() < self.breaks[host]

    async def _reach(self, node: Node, host: str) -> None:
        if node.dead:
            raise OSError(101, "this node is dead")
        await asyncio.sleep(2 * self.delay(node.host, host))
        give_up = self.loop.time() + CONNECT_S
        while not (self.reaches(node.host, host) and self.reaches(host, node.host)):
            healed = self.loop.create_future()
            self._healed.append(healed)
            await asyncio.wait((healed,), timeout=max(0.0, give_up - self.loop.time()))
            if self.loop.time() >= give_up:
                raise TimeoutError(110, f"{host} does not answer")
            await asyncio.sleep(self.delay(node.host, host))


class Listener:
    """In the place of an asyncio.Server."""

    def __init__(self, net: Net, node: Node, factory: Callable[[], Any], address: tuple[str, int]) -> None:
        self.net, self.node, self.factory = net, node, factory
        self.address = address
        self.sockets = (Socket(address, None),)

    def close(self) -> None:
        self.net.stop_listening(self.address)

    async def wait_closed(self) -> None:
        pass


class Socket:
    """What the product and aiohttp ask of a socket: its addresses, and options, which decide when it gives up."""

    family, type, proto = socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP

    def __init__(self, own: tuple[str, int], peer: tuple[str, int] | None) -> None:
        self.own, self.peer = own, peer
        self.options: dict[tuple[int, int], int] = {}

    @property
    def address(self) -> tuple[str, int] | None:
        return self.peer

    def setsockopt(self, level: int, option: int, value: int) -> None:
        self.options[level, option] = value

    def getsockname(self) -> tuple[str, int]:
        return self.own

    def getpeername(self) -> tuple[str, int] | None:
        return self.peer

    def fileno(self) -> int:
        return -1

    @property
    def give_up_s(self) -> float:
        """How long data may be in flight without an acknowledgement."""
        return self.options.get((socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT), 0) / 1000 or KERNEL_S

    @property
    def idle_s(self) -> float:
        """How long a forgotten connection without data in flight is believed to be there."""
        if not self.options.get((socket.SOL_SOCKET, socket.SO_KEEPALIVE)):
            return 0.0
        idle, every, count = (
            self.options.get((socket.IPPROTO_TCP, option), default)
            for option, default in ((socket.TCP_KEEPIDLE, 7200), (socket.TCP_KEEPINTVL, 75), (socket.TCP_KEEPCNT, 9))
        )
        return float(idle + every * count)


class Stream(asyncio.Transport):
    """One end of a connection."""

    peer: Stream

    def __init__(self, net: Net, node: Node, context: Context, own: tuple[str, int], peer: tuple[str, int]) -> None:
        self.sock = Socket(own, peer)
        super().__init__({"socket": self.sock, "sockname": own, "peername": peer})
        self.net, self.node, self.context = net, node, context
        self.opened = False  # By this end.
        self._protocol: Any = None
        self._in_flight: list[bytes] = []
        self._bytes = 0
        self._ends: Exception | str | None = None  # "eof", or the error that the peer gets after what is in flight.
        self._due = False
        self._at = 0.0
        self._closing = False
        self._lost = False
        self._reading = True
        self._left = b""  # Delivered to this end, which has not read it yet.
        self._over: Exception | str | None = None  # The end of what is delivered, once it has arrived.
        self._forgotten = False
        self._paused = False
        self._high = HIGH_BYTES
        self._stalled: asyncio.TimerHandle | None = None

    # -- asyncio.Transport

    def get_protocol(self) -> Any:
        return self._protocol

    def set_protocol(self, protocol: Any) -> None:
        self._protocol = protocol

    def is_closing(self) -> bool:
        return self._closing

    def is_reading(self) -> bool:
        return self._reading and not self._closing

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        if not self._reading:
            self._reading = True
            self.net.loop.call_soon(self._read_on, context=self.context)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = HIGH_BYTES if high is None else high

    def get_write_buffer_size(self) -> int:
        return self._bytes

    def can_write_eof(self) -> bool:
        return False

    def write(self, data: Any) -> None:
        if self._closing or not data:
            return
        self._in_flight.append(bytes(data))
        self._bytes += len(self._in_flight[-1])
        self._deliver_soon()
        if self._bytes > self._high and not self._paused:
            self._paused = True
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        self._end("eof")

    def abort(self) -> None:
        if not self._closing:
            self._in_flight.clear()
            self._bytes = 0
        self._end(ConnectionResetError(104, "the peer reset the connection"))

    # -- the net

    def begin(self, factory: Callable[[], Any]) -> None:
        """Accept: the connection is there before its listener's process has had a turn."""
        if self._lost:
            return
        protocol = factory()
        self._protocol = protocol
        protocol.connection_made(self)
        self.peer._deliver_soon()

    def hang_up(self) -> None:
        """The process is gone: the peer gets what was written, and then a reset. Nobody here is told."""
        self._end(ConnectionResetError(104, "the peer is gone"))

    def forget(self) -> None:
        self._forgotten = True
        self._stall()
        if self.sock.idle_s:
            self.net.loop.call_later(self.sock.idle_s, self._give_up)

    def go_on(self) -> None:
        if self._in_flight or self._ends is not None:
            self._deliver_soon()

    def _end(self, how: Exception | str) -> None:
        if self._closing:
            return
        self._closing = True
        self._ends = how
        self._deliver_soon()
        self.net.loop.call_soon(self._lose, None, context=self.context)

    def _deliver_soon(self) -> None:
        if self._due:
            return
        net, peer = self.net, self.peer
        one, other = self.node.host, peer.node.host
        if self._forgotten or (one, other) in net.cuts:
            self._stall()
            return
        self._due = True
        self._at = max(self._at, net.loop.now + net.delay(one, other))
        arrives = net.loop.call_at(self._at, self._deliver, context=peer.context)
        arrives.node = None  # type: ignore[attr-defined]  # The peer's kernel takes it, also where its process is frozen.

    def _deliver(self) -> None:
        """Hand what is in flight to the peer; this runs as the peer."""
        self._due = False
        peer = self.peer
        if self._forgotten or (self.node.host, peer.node.host) in self.net.cuts:
            self._stall()
            return
        if peer._protocol is None and not peer._lost:
            return  # Not accepted yet: `begin` goes on.
        if peer.opened and self._in_flight and self.net.breaks_now(peer.node.host):
            self._break()
            return
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None
        data, self._in_flight, self._bytes = b"".join(self._in_flight), [], 0
        if peer._lost:
            data = b""
        peer._left += data
        peer._over = self._ends
        if peer.node.frozen:
            self.net.loop.call_soon(peer._read_on, context=peer.context)
        elif data or self._ends is not None:
            peer._read_on()
        if self._paused:
            self._paused = False
            if not self._lost:
                self.net.loop.call_soon(self._protocol.resume_writing, context=self.context)

    def _break(self) -> None:
        """What is in flight is lost, and both ends are told that the connection is gone."""
        for each in (self, self.peer):
            each._in_flight.clear()
            each._bytes, each._closing = 0, True
            error = ConnectionResetError(104, "the connection broke")
            self.net.loop.call_soon(each._lose, error, context=each.context)

    def _read_on(self) -> None:
        while self._left and self._reading and not self._lost:
            if isinstance(self._protocol, asyncio.BufferedProtocol):
                into: Any = self._protocol.get_buffer(len(self._left))
                size = min(len(into), len(self._left))
                into[:size] = self._left[:size]
                self._left = self._left[size:]
                self._protocol.buffer_updated(size)
            else:
                data, self._left = self._left, b""
                self._protocol.data_received(data)
        if not self._left and self._over is not None:
            self._ended(self._over)

    def _ended(self, how: Exception | str) -> None:
        if self._lost or self._closing:
            return
        if isinstance(how, Exception):
            self._closing = True
            # As with asyncio and uvloop, never in the tick in which data came: who waits for the data goes first.
            self.net.loop.call_soon(self._lose, how, context=self.context)
        elif not self._protocol.eof_received():
            self.close()

    def _stall(self) -> None:
        """Nothing that is in flight arrives: the kernel gives up at last."""
        if self._stalled is None and self._in_flight and not self._lost:
            wait_s = self.sock.give_up_s
            self._stalled = self.net.loop.call_later(wait_s, self._give_up, context=self.context)

    def _give_up(self) -> None:
        if not self._lost:
            self._closing = True
            self._lose(TimeoutError(110, "nobody acknowledges what was sent"))

    def _lose(self, error: Exception | None) -> None:
        if self._lost:
            return
        self._lost = True
        self.net.open.pop(self, None)
        if self._stalled is not None:
            self._stalled.cancel()
        if self._protocol is not None:
            self._protocol.connection_lost(error)
