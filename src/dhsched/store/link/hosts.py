"""Several hosts in one URL: seeds of a cluster, or one primary and its replicas.

Theory of operation. Each time that a link connects, all hosts are asked at once what they are. If one is a node of a
cluster, the others are too, and any node that answers will do. Else the link uses the primary. Two hosts that are both
primaries have two histories, and services that write to both lose one of them. So a link compares how many replicas
follow each of the two (`replicas=N` in the URL): a primary that was cut off or replaced has lost its replicas. If that
decides nothing, the link stays where it was, refuses the other primary, and reports both. While the link is connected,
the hosts are asked again every `watch_s`, because a primary that was replaced does not say so by itself.
"""

import asyncio
import logging
import re
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dhsched.errors import StoreError, StoreIncompatible, StoreRefused
from dhsched.store.link.address import Address, Host
from dhsched.store.link.finder import Finder, Leave, Seen, reword
from dhsched.store.link.questions import connected, nobody, within
from dhsched.tasks import cancel

log = logging.getLogger(__name__)

LAG_MAX_S = 10  # A replica that has acknowledged nothing for longer is not online, whatever the primary calls it.
OVER_S = 60.0  # Two primaries that were not seen for this long, because one was silent, are reported anew.
REPLICA_LINE = re.compile(r"slave\d+")


# -- the decision


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What one host says of itself. `online` is how many replicas follow it closely."""

    primary: bool
    online: int = 0
    cluster: bool = False
    run_id: str = ""

    def __str__(self) -> str:
        if self.cluster:
            return "a cluster node"
        replicas = "1 replica" if self.online == 1 else f"{self.online} replicas"
        return f"a primary with {replicas} online" if self.primary else "a replica"


@dataclass(frozen=True, slots=True)
class Choice:
    """The place of the host to use, or None; and the places of primaries that are refused because nothing decides."""

    place: int | None
    refused: tuple[int, ...] = ()


def choose_primary(answers: Sequence[Answer | StoreError], *, before: int | None, replicas: int) -> Choice:
    """Return which of the hosts that answered to use; `before` is the place of the one that was used last."""
    primaries = _distinct_primaries(answers, before)
    candidates = [place for place, answer in primaries.items() if answer.online >= replicas] or [*primaries]
    if len(candidates) <= 1:
        return Choice(candidates[0] if candidates else None)
    stay = before if before in primaries else None
    return Choice(stay, tuple(place for place in primaries if place != stay))


def _distinct_primaries(answers: Sequence[Answer | StoreError], before: int | None) -> dict[int, Answer]:
    """Return the primaries by place. A server that the URL names twice, by two names, counts once."""
    found: dict[int, Answer] = {}
    names: dict[str, int] = {}
    for place, answer in enumerate(answers):
        if isinstance(answer, StoreError) or not answer.primary:
            continue
        if (same := names.setdefault(answer.run_id or f"place {place}", place)) == place:
            found[place] = answer
        elif place == before:
            del found[same]
            found[place] = answer
    return found


def read_answer(info: Mapping[str, str]) -> Answer:
    """Return what the fields of INFO say. Raise StoreIncompatible for a Sentinel."""
    if "sentinel_masters" in info:
        raise StoreIncompatible("a Sentinel, use sentinel://HOSTS/NAME")
    online = 0
    for name, value in info.items():
        if REPLICA_LINE.fullmatch(name):
            facts = dict(each.partition("=")[::2] for each in value.split(","))
            online += facts.get("state") == "online" and int(facts.get("lag", "0")) <= LAG_MAX_S
    return Answer(
        primary=info["role"] == "master",
        online=online,
        cluster=info.get("cluster_enabled") == "1",
        run_id=info.get("run_id", ""),
    )


# -- two primaries


@dataclass(frozen=True, slots=True)
class TwoPrimaries:
    """Hosts that are primaries at the same time. `used` is the one that the link stays with; empty if there is none."""

    used: str
    refused: tuple[str, ...]

    def __str__(self) -> str:
        others = " and ".join(self.refused)
        if not self.used:
            return f"{others} are primaries at once, and this link used none of them before"
        return f"{self.used} and {others} are primaries at once: staying with {self.used}, refusing {others}"


class Occurrences:
    """Counts how often two primaries were found, and passes each occurrence on once."""

    def __init__(self) -> None:
        self.count = 0
        self.current: TwoPrimaries | None = None
        self._seen_at = 0.0
        self._report: Callable[[TwoPrimaries], None] | None = None

    def report_to(self, report: Callable[[TwoPrimaries], None]) -> None:
        """Call `report` for each occurrence from now on, and at once for the one that goes on now, if any."""
        self._report = report
        if self.current is not None:
            report(self.current)

    def note(self, found: TwoPrimaries | None, *, all_answered: bool, now: float) -> None:
        """Note one look at the hosts. With a silent host, an occurrence that is not seen any more may still go on."""
        if found is None:
            if all_answered or now - self._seen_at > OVER_S:
                self.current = None
            return
        self._seen_at = now
        if self.current is not None:
            return
        self.current = found
        self.count += 1
        log.error("%s", found)
        if self._report is not None:
            self._report(found)


# -- the hosts


class Hosts(Finder):
    """Finds the server among the hosts of one URL; see the module."""

    searches = True

    def __init__(self, address: Address, tls: ssl.SSLContext | None, *, probe_s: float, watch_s: float) -> None:
        super().__init__(address)
        self.two_primaries = Occurrences()
        self._tls = tls
        self._probe_s = probe_s
        self._watch_s = watch_s
        self._before: int | None = None
        self._failed: set[int] = set()  # Cluster nodes that could not be used since the last connection.
        self._answers: list[Answer | StoreError] = []  # The latest answer of each host.

    async def find(self) -> Address:
        hosts, failed = self.address.hosts, self._failed
        self._answers = await self._ask_all(lambda place, answer: answer.cluster and place not in failed)
        nodes = [n for n, each in enumerate(self._answers) if isinstance(each, Answer) and each.cluster]
        if nodes:
            fresh = [place for place in nodes if place not in failed]
            if not fresh:
                failed.clear()
            return self.address.at(hosts[(fresh or nodes)[0]])
        if (choice := self._choose()).place is None:
            raise self._nobody()
        return self.address.at(hosts[choice.place])

    def used(self, server: Address) -> None:
        self._before = self._place(server)
        self._failed.clear()

    def failed(self, server: Address, error: StoreError) -> None:
        if (place := self._place(server)) is not None:
            self._failed.add(place)
        reword(error, f"of the hosts of store {self.address.redacted()} ({self._each()}) {server.hosts[0]} was tried: ")

    async def watch(self, leave: Leave) -> None:
        while True:
            await asyncio.sleep(self._watch_s)
            before = self._before
            self._answers = await self._ask_all()
            if before is None or before != self._before:
                continue  # The link has connected meanwhile, by newer answers.
            choice, answer = self._choose(), self._answers[before]
            # A host that does not answer may only be slow: its connection, if it is broken, ends by itself.
            if choice.place != before and isinstance(answer, Answer):
                leave(f"it is {answer} now, not the primary to use ({self._each()})")

    async def survey(self) -> list[Seen]:
        self._answers = await self._ask_all()
        chosen = choose_primary(self._answers, before=self._before, replicas=self.address.replicas).place
        return [
            Seen(host, str(answer), self._remedy(answer, chosen=place == chosen))
            for place, (host, answer) in enumerate(zip(self.address.hosts, self._answers, strict=True))
        ]

    def _remedy(self, answer: Answer | StoreError, *, chosen: bool) -> str:
        """Return what to do about one host; empty if it is as it should be."""
        if isinstance(answer, StoreError):
            return "start it, or take it out of the URL"
        if answer.cluster or not answer.primary:
            return ""
        if not chosen:
            return "it must not be a second primary: make it a replica of the one that is used (REPLICAOF)"
        wanted = self.address.replicas
        return f"replicas={wanted}: start more replicas of it" if answer.online < wanted else ""

    def _choose(self) -> Choice:
        hosts = self.address.hosts
        choice = choose_primary(self._answers, before=self._before, replicas=self.address.replicas)
        found = None
        if choice.refused:
            used = "" if choice.place is None else str(hosts[choice.place])
            found = TwoPrimaries(used, tuple(str(hosts[place]) for place in choice.refused))
        all_answered = not any(isinstance(answer, StoreError) for answer in self._answers)
        self.two_primaries.note(found, all_answered=all_answered, now=asyncio.get_running_loop().time())
        return choice

    def _place(self, server: Address) -> int | None:
        hosts = self.address.hosts
        return hosts.index(server.hosts[0]) if server.hosts[0] in hosts else None

    def _each(self) -> str:
        return "; ".join(f"{host}: {answer}" for host, answer in zip(self.address.hosts, self._answers, strict=True))

    def _nobody(self) -> StoreError:
        shown = self.address.redacted()
        if any(isinstance(answer, Answer) and answer.primary for answer in self._answers):
            return StoreRefused(
                f"store {shown} has two primaries, and this link used neither before ({self._each()}): make one of "
                "them a replica of the other with REPLICAOF",
                code="TWOPRIMARIES",
            )
        reasons = [each if isinstance(each, StoreError) else str(each) for each in self._answers]
        remedy = "start the primary, or promote a replica with REPLICAOF NO ONE"
        return nobody(f"no primary among the hosts of store {shown}", self.address.hosts, reasons, remedy)

    async def _ask_all(self, enough: Callable[[int, Answer], bool] | None = None) -> list[Answer | StoreError]:
        """Ask all hosts at once. With `enough`, the first answer for which it is true ends the wait for the others."""
        asking = [asyncio.create_task(within(self._probe_s, self._ask(host))) for host in self.address.hosts]
        waiting = set(asking)
        try:
            while waiting:
                _, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                answers = [task.result() if task.done() else NOT_WAITED_FOR for task in asking]
                sure = ((n, each) for n, each in enumerate(answers) if isinstance(each, Answer))
                if enough is not None and any(enough(n, each) for n, each in sure):
                    break
            return answers
        finally:
            await cancel(*asking)

    async def _ask(self, host: Host) -> Answer:
        user, password = self.address.user, self.address.password
        async with connected(host, self._tls, user=user, password=password, silent_s=self._probe_s) as questions:
            info = (await questions.ask("INFO")).decode()
        pairs = (line.partition(":")[::2] for line in info.splitlines())
        return read_answer({name: value for name, value in pairs if value})


NOT_WAITED_FOR = StoreError("not waited for")
