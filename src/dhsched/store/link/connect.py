"""Makes connections, the first and every later one: attempts, their limits, and the way through a cluster.

Which server comes first is the finder's decision (`finder.py`): the one host of the URL, one of several, or what
Sentinels name. In a cluster, nodes that were seen before are tried as well.
"""

import asyncio
import logging
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, fields
from random import Random

from dhsched.errors import DhschedError, StoreError, StoreRefused, StoreUnavailable
from dhsched.store.link.address import Address, Host
from dhsched.store.link.cluster import Node
from dhsched.store.link.dial import dial, tls_context
from dhsched.store.link.finder import Finder, Seen
from dhsched.store.link.greeting import Greeting, Server, greet
from dhsched.store.link.hosts import Hosts, Occurrences
from dhsched.store.link.sentinel import Sentinels
from dhsched.store.link.wire import OnMessage, Wire
from dhsched.tasks import cancel, is_set_within

log = logging.getLogger(__name__)

HOPS_MAX = 4  # An attempt fails after this many nodes that each name another owner of our slot.
LEAVE_S = 0.5  # Answers of a server that is to be left are waited for this long; then they are unknown.
TROUBLES_MAX = 16  # The trouble of a link names the errors of this many nodes, the latest ones.
WORTH_WAITING_FOR = frozenset({"LOADING", "CLUSTERDOWN", "MASTERDOWN", "BUSY", "TWOPRIMARIES"})


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSettings:
    """The limits of a link. The defaults suit small scripts; a link for big reads needs a longer deadline."""

    deadline_s: float = 2.0  # A call without a deadline of its own fails after this long.
    connect_s: float = 5.0  # Limit of one attempt to connect and greet; for the first connection, of all attempts.
    dead_after_s: float = 3.0  # When the oldest call is overdue by this much, the link reconnects.
    backoff_first_s: float = 0.05  # Wait after a failed attempt; doubled each time up to `backoff_max_s`, jittered.
    backoff_max_s: float = 0.5  # A primary that dies is replaced within seconds: waiting longer only adds to that.
    in_flight_max: int = 100_000  # Past this many calls, sent and unsent, a call is refused with StoreOverloaded.
    unsent_max_bytes: int = 64 * 1024 * 1024  # Past this many bytes that wait to be sent, a call is refused as well.
    write_buffer_bytes: int = 1024 * 1024  # Past this many bytes in the transport, calls wait in the link.
    settle_ms: int = 800  # Replicas that have not confirmed a batch by then are missing. Two fit inside `deadline_s`.
    probe_s: float = 1.0  # A host or a Sentinel that has not said by then what it knows is not waited for.
    watch_s: float = 2.0  # Time between two questions to several hosts, or to Sentinels, while the link is connected.
    client_name: str = "dhsched"  # As CLIENT LIST shows it; no spaces.

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if not value or (not isinstance(value, str) and value < 0):
                raise ValueError(f"link setting {each.name} is {value!r}: it must be more than 0")


class Connector:
    """Makes the connections of one link. `go_to` is the node to try next; `trouble` is why the last one ended."""

    def __init__(
        self,
        address: Address,
        settings: LinkSettings,
        greeting: Greeting,
        channels: Mapping[bytes, OnMessage],
    ) -> None:
        self.go_to: Node | None = None
        self.trouble = "not connected yet"
        self._address = address
        self._settings = settings
        self._greeting = greeting
        self._channels = channels
        self._tls = tls_context(address)
        self._finder = make_finder(address, self._tls, settings)
        self.two_primaries = self._finder.two_primaries if isinstance(self._finder, Hosts) else Occurrences()
        self._nodes: list[Address] = []  # The nodes of the cluster, as far as they are known.
        self._random = Random()
        self._wire: Wire | None = None
        self._watching: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()

    async def first(self) -> tuple[Wire, Server]:
        """Return the first connection, or raise the error that says why there is none: at once if waiting is no use."""
        loop = asyncio.get_running_loop()
        give_up = loop.time() + self._settings.connect_s
        attempt = 0
        earlier: StoreError | None = None
        while True:
            try:
                wire, server = await self._attempt(None, give_up - loop.time())
                break
            except (StoreUnavailable, StoreRefused) as error:
                if earlier is not None and isinstance(error.__cause__, TimeoutError):
                    # The last attempt had only the time that was left: the error before it is the reason.
                    raise earlier from None
                wait_s = self._backoff_s(attempt)
                if self._hopeless(error) or loop.time() + wait_s >= give_up:
                    raise
                earlier = error
            await asyncio.sleep(wait_s)
            attempt += 1
        if self._finder.searches and not server.cluster:
            if self._address.caution:
                log.warning("store %s: %s", self._address.redacted(), self._address.caution)
            self._watching = asyncio.create_task(self._watch(), name=f"watch {self._address.redacted()}")
        return wire, server

    async def again(self) -> tuple[Wire, Server]:
        """Return the next connection, however long it takes: any reason to fail may go away, even a wrong password."""
        attempt = 0
        troubles: dict[str, str] = {}
        while True:
            node = self._next_node(attempt)
            where = (node or self._address).redacted()
            try:
                return await self._attempt(node, self._settings.connect_s)
            except DhschedError as error:
                why = str(error)
                log.debug("attempt %d: %s", attempt, error)
            except Exception as error:
                # A malformed answer must not end the attempts, or the link would stay down for good.
                why = repr(error)
                log.exception("attempt %d to connect to store %s", attempt, where)
            troubles.pop(where, None)
            troubles[where] = why
            self.trouble = "; ".join([*troubles.values()][-TROUBLES_MAX:])
            self._hurry.clear()
            await is_set_within(self._backoff_s(attempt), self._hurry)
            attempt += 1

    async def close(self) -> None:
        """Stop watching for another server."""
        await cancel(self._watching)

    def _hopeless(self, error: StoreError) -> bool:
        """Return whether waiting does not help. Where there are several hosts, a replica may yet be promoted."""
        if not isinstance(error, StoreRefused) or error.code in WORTH_WAITING_FOR:
            return False
        return not (self._finder.searches and error.code == "READONLY")

    async def _watch(self) -> None:
        while True:
            try:
                await self._finder.watch(self._leave)
            except Exception:
                log.exception("watching the hosts of store %s", self._address.redacted())
            await asyncio.sleep(self._settings.watch_s)

    def _leave(self, reason: str) -> None:
        """Leave the connection for another server, or hurry to find one if there is no connection."""
        if (wire := self._wire) is None or wire.gone:
            self._hurry.set()
            return
        wire.leave(reason)
        asyncio.get_running_loop().call_later(LEAVE_S, wire.drop, reason)

    def _backoff_s(self, attempt: int) -> float:
        most_s = min(self._settings.backoff_max_s, self._settings.backoff_first_s * 2.0 ** min(attempt, 16))
        return most_s * self._random.uniform(0.5, 1.0)

    async def _attempt(self, node: Address | None, limit_s: float) -> tuple[Wire, Server]:
        """Dial and greet a node, or without one what the finder finds; in a cluster go on to the owner of our slot."""
        at, found = node or self._address, node
        failure: StoreError
        try:
            async with asyncio.timeout(limit_s):
                at = found = node or await self._finder.find()
                for _ in range(HOPS_MAX):
                    wire, server = await self._dial_and_greet(at)
                    self._nodes = [self._at(peer, asked=at) for peer in server.peers]
                    if server.elsewhere is None:
                        self._finder.used(at)
                        self._wire = wire
                        if self.two_primaries.current is not None:
                            self.trouble = str(self.two_primaries.current)
                        return wire, server
                    wire.drop("it does not own our slot")
                    at = self._at(server.elsewhere, asked=at)
                raise StoreRefused(
                    f"{HOPS_MAX} nodes of the cluster at store {self._address.redacted()} each name another owner of "
                    f"{self._greeting.slot_key}: wait until they agree",
                    code="CLUSTERDOWN",
                )
        except TimeoutError as error:
            tls = ", or use redis:// if it has no TLS" if at.tls else ""
            failure = StoreUnavailable(
                f"store {at.redacted()} did not connect and greet within {limit_s:.3g} s: check that it runs{tls}",
                unknown=False,
            )
            failure.__cause__ = error
        except StoreError as error:
            failure = error
        if node is None and found is not None:
            self._finder.failed(found, failure)
        raise failure

    async def _dial_and_greet(self, address: Address) -> tuple[Wire, Server]:
        settings = self._settings
        silent_s = settings.deadline_s + settings.dead_after_s
        wire = await dial(address, self._tls, write_buffer_bytes=settings.write_buffer_bytes, silent_s=silent_s)
        wire.channels = self._channels
        try:
            return wire, await greet(wire, address, self._greeting, list(self._channels))
        except BaseException:
            wire.drop("the greeting failed")
            raise

    def _next_node(self, attempt: int) -> Address | None:
        """Return the node to try, or None for what the finder finds: after MOVED the node that it named, else each of
        them in turn, because each can say who owns the slot."""
        if self.go_to is not None:
            node, self.go_to = self._at(self.go_to), None
            return node
        turn = attempt % (len(self._nodes) + 1)
        return self._nodes[turn - 1] if turn else None

    def _at(self, node: Node, asked: Address | None = None) -> Address:
        return self._address.at(Host(node.host or (asked or self._address).host, node.port))


def make_finder(address: Address, tls: ssl.SSLContext | None, settings: LinkSettings) -> Finder:
    """Return the finder for this form of URL."""
    probe_s = min(settings.probe_s, settings.connect_s / 2)
    if address.service is not None:
        return Sentinels(address, tls, probe_s=probe_s, watch_s=settings.watch_s)
    if address.others:
        return Hosts(address, tls, probe_s=probe_s, watch_s=settings.watch_s)
    return Finder(address)


async def survey(address: Address) -> list[Seen]:
    """Ask every host of a URL that names several, or every Sentinel, what it knows; empty for any other URL."""
    return await make_finder(address, tls_context(address), LinkSettings()).survey()
