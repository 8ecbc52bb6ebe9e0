"""Makes connections, the first and every later one: attempts, their limits, and the way through a cluster."""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from random import Random

from dhsched.errors import DhschedError, StoreError, StoreRefused, StoreUnavailable
from dhsched.store.link.address import Address
from dhsched.store.link.cluster import Node
from dhsched.store.link.dial import dial, tls_context
from dhsched.store.link.greeting import Greeting, Server, greet
from dhsched.store.link.wire import OnMessage, Wire

log = logging.getLogger(__name__)

HOPS_MAX = 4  # An attempt fails after this many nodes that each name another owner of our slot.
WORTH_WAITING_FOR = frozenset({"LOADING", "CLUSTERDOWN", "MASTERDOWN", "BUSY"})


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSettings:
    """The limits of a link. The defaults suit small scripts; a link for big reads needs a longer deadline."""

    deadline_s: float = 2.0  # A call without a deadline of its own fails after this long.
    connect_s: float = 5.0  # Limit of one attempt to connect and greet; for the first connection, of all attempts.
    dead_after_s: float = 3.0  # When the oldest call is overdue by this much, the link reconnects.
    backoff_first_s: float = 0.05  # Wait after a failed attempt; doubled each time up to `backoff_max_s`, jittered.
    backoff_max_s: float = 2.0
    in_flight_max: int = 100_000  # Past this many calls, sent and unsent, a call is refused with StoreOverloaded.
    unsent_max_bytes: int = 64 * 1024 * 1024  # Past this many bytes that wait to be sent, a call is refused as well.
    write_buffer_bytes: int = 1024 * 1024  # Past this many bytes in the transport, calls wait in the link.
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
        self._seeds = [address]
        self._random = Random()

    async def first(self) -> tuple[Wire, Server]:
        """Return the first connection, or raise the error that says why there is none: at once if waiting is no use."""
        loop = asyncio.get_running_loop()
        give_up = loop.time() + self._settings.connect_s
        attempt = 0
        earlier: StoreError | None = None
        while True:
            try:
                return await self._attempt(self._address, give_up - loop.time())
            except (StoreUnavailable, StoreRefused) as error:
                if earlier is not None and isinstance(error.__cause__, TimeoutError):
                    # The last attempt had only the time that was left: the error before it is the reason.
                    raise earlier from None
                wait_s = self._backoff_s(attempt)
                hopeless = isinstance(error, StoreRefused) and error.code not in WORTH_WAITING_FOR
                if hopeless or loop.time() + wait_s >= give_up:
                    raise
                earlier = error
            await asyncio.sleep(wait_s)
            attempt += 1

    async def again(self) -> tuple[Wire, Server]:
        """Return the next connection, however long it takes: any reason to fail may go away, even a wrong password."""
        attempt = 0
        while True:
            # The node that MOVED named comes first, then all known nodes: each can say who owns the slot.
            address = self._seeds[attempt % len(self._seeds)] if self.go_to is None else self._at(self.go_to)
            self.go_to = None
            try:
                return await self._attempt(address, self._settings.connect_s)
            except DhschedError as error:
                self.trouble = str(error)
                log.debug("attempt %d: %s", attempt, error)
            except Exception as error:
                # A malformed answer must not end the attempts, or the link would stay down for good.
                self.trouble = repr(error)
                log.exception("attempt %d to connect to store %s", attempt, address.redacted())
            await asyncio.sleep(self._backoff_s(attempt))
            attempt += 1

    def _backoff_s(self, attempt: int) -> float:
        most_s = min(self._settings.backoff_max_s, self._settings.backoff_first_s * 2.0 ** min(attempt, 16))
        return most_s * self._random.uniform(0.5, 1.0)

    async def _attempt(self, address: Address, limit_s: float) -> tuple[Wire, Server]:
        """Dial and greet, and in a cluster go on to the node that owns our slot."""
        try:
            async with asyncio.timeout(limit_s):
                for _ in range(HOPS_MAX):
                    wire, server = await self._dial_and_greet(address)
                    self._seeds = [self._address, *(self._at(node, asked=address) for node in server.peers)]
                    if server.elsewhere is None:
                        return wire, server
                    wire.drop("it does not own our slot")
                    address = self._at(server.elsewhere, asked=address)
        except TimeoutError as error:
            tls = ", or use redis:// if it has no TLS" if address.tls else ""
            raise StoreUnavailable(
                f"store {address.redacted()} did not connect and greet within {limit_s:.3g} s: check that it runs{tls}",
                unknown=False,
            ) from error
        raise StoreRefused(
            f"{HOPS_MAX} nodes of the cluster at store {self._address.redacted()} each name another owner of "
            f"{self._greeting.slot_key}: wait until they agree",
            code="CLUSTERDOWN",
        )

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

    def _at(self, node: Node, asked: Address | None = None) -> Address:
        return replace(self._address, host=node.host or (asked or self._address).host, port=node.port, path=None)
