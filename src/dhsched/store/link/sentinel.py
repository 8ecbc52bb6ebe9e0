"""Sentinels: which server is the primary now, and when that changes.

Theory of operation. Sentinels watch a primary and promote one of its replicas when a quorum of them finds that the
primary is gone. Each promotion has a number, the config-epoch. A Sentinel that is cut off from the others still names
the old primary, with the older number: so all Sentinels are asked, and the highest number decides. The server that they
name is greeted like any other, and refused if it is not a primary.

While the link is open, the Sentinels are asked again every `watch_s`. To move sooner, the link also subscribes to
`+switch-master` on each Sentinel, and asks all of them when one publishes it. The message only hastens the question: a
message that is lost, repeated or forged changes nothing.
"""

import asyncio
import contextlib
import logging
import ssl
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from dhsched.errors import StoreError
from dhsched.store.link.address import Address, Host
from dhsched.store.link.finder import Finder, Leave, Seen, reword
from dhsched.store.link.questions import Questions, connected, nobody, within
from dhsched.tasks import is_set_within

log = logging.getLogger(__name__)

SWITCHED = "+switch-master"
ASK_GAP_S = 0.05  # Between two rounds of questions, however many messages come.
HEAR_AGAIN_S = 1.0  # Wait before a subscription that ended is made again.
SILENT_S = 10.0  # A Sentinel that acknowledges nothing for this long loses its subscription.


@dataclass(frozen=True, slots=True)
class Named:
    """The primary that one Sentinel names, and the number of the promotion that made it one."""

    host: Host
    epoch: int

    def __str__(self) -> str:
        return f"names {self.host}, config-epoch {self.epoch}"


def newest(answers: Sequence[Named | StoreError], before: Host | None = None) -> Named | None:
    """Return what the Sentinels with the highest config-epoch name; None if no Sentinel names anything.

    They name one server, unless some give its name and some its address. Then `before`, which is used already, is
    preferred, and after it what most of them name.
    """
    named = [answer for answer in answers if isinstance(answer, Named)]
    if not named:
        return None
    highest = max(answer.epoch for answer in named)
    votes = Counter(answer for answer in named if answer.epoch == highest)
    return max(votes, key=lambda answer: (answer.host == before, votes[answer]))


class Sentinels(Finder):
    """Finds the primary by its name; see the module."""

    searches = True

    def __init__(self, address: Address, tls: ssl.SSLContext | None, *, probe_s: float, watch_s: float) -> None:
        super().__init__(address)
        assert address.service is not None
        self._service = address.service
        self._tls = tls
        self._probe_s = probe_s
        self._watch_s = watch_s
        self._before: Host | None = None
        self._switched = asyncio.Event()

    async def find(self) -> Address:
        answers = await self._ask_all()
        if (named := newest(answers, self._before)) is None:
            what = f"no Sentinel of store {self.address.redacted()} names a primary"
            remedy = f"check the Sentinels, the name {self._service}, and sentinel_password if they want one"
            raise nobody(what, self.address.hosts, [each for each in answers if isinstance(each, StoreError)], remedy)
        return self.address.at(named.host)

    def used(self, server: Address) -> None:
        self._before = server.hosts[0]

    def failed(self, server: Address, error: StoreError) -> None:
        reword(error, f"the Sentinels of store {self.address.redacted()} name {server.hosts[0]}: ")

    async def watch(self, leave: Leave) -> None:
        async with asyncio.TaskGroup() as hearing:
            for host in self.address.hosts:
                hearing.create_task(self._hear(host))
            while True:
                await is_set_within(self._watch_s, self._switched)
                self._switched.clear()
                before = self._before
                named = newest(await self._ask_all(), before)
                if named is not None and before == self._before and named.host != before:
                    leave(f"the Sentinels name {named.host} now")
                await asyncio.sleep(ASK_GAP_S)

    async def survey(self) -> list[Seen]:
        answers = await self._ask_all()
        chosen = newest(answers)
        pairs = zip(self.address.hosts, answers, strict=True)
        return [Seen(host, str(each), _remedy(each, chosen)) for host, each in pairs]

    async def _ask_all(self) -> list[Named | StoreError]:
        return await asyncio.gather(*(within(self._probe_s, self._ask(host)) for host in self.address.hosts))

    async def _ask(self, host: Host) -> Named:
        async with self._connected(host) as questions:
            found = await questions.ask("SENTINEL", "MASTER", self._service)
        fields = dict(zip(found[::2], found[1::2], strict=True))
        port = int(fields[b"port"])
        if not 0 < port < 65536:
            raise ValueError("no port")
        return Named(Host(fields[b"ip"].decode(), port), int(fields[b"config-epoch"]))

    async def _hear(self, host: Host) -> None:
        """Set `_switched` for each message that our primary was replaced, as long as the link is open."""
        while True:
            ended = await within(None, self._subscribed(host))
            log.debug("no subscription at Sentinel %s: %s", host, ended)
            await asyncio.sleep(HEAR_AGAIN_S)

    async def _subscribed(self, host: Host) -> None:
        async with self._connected(host) as questions:
            await questions.ask("SUBSCRIBE", SWITCHED)
            while True:
                _kind, _channel, message = await questions.next()
                if message.split(b" ", 1)[0] == self._service.encode():
                    self._switched.set()

    def _connected(self, host: Host) -> contextlib.AbstractAsyncContextManager[Questions]:
        user, password = self.address.sentinel_user, self.address.sentinel_password
        return connected(host, self._tls, user=user, password=password, silent_s=SILENT_S)


def _remedy(answer: Named | StoreError, chosen: Named | None) -> str:
    """Return what to do about one Sentinel; empty if it names the primary that is used."""
    if isinstance(answer, StoreError):
        return "start it, correct its address or sentinel_password, or take it out of the URL"
    behind = chosen is not None and answer.host != chosen.host
    return "it is behind: check that it reaches the other Sentinels" if behind else ""
