"""What the Workers consumed against what the applications were told and what the store recorded: I6, from outside.

Each function returns the violations it sees, as sentences. A store that was set back has had several histories: what a
runtime consumed must be right in one of them, and each must be right by itself.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from dhsched.types import name_of
from tests.chaos.limits import CREDIT
from tests.chaos.load import Told
from tests.chaos.replay import Account


class Consumed(NamedTuple):
    """One item, as a runtime was given it."""

    t: float
    live: str
    worker: str
    epoch: int
    seq: int
    kind: str
    text: str
    run: int = 1
    """Which runtime of its generation: a Worker starts one again only after the store was set back."""


class Records(NamedTuple):
    """All that the runtimes wrote down."""

    consumed: list[Consumed]
    running_max: dict[str, int]
    """The most runtimes at once, by file: one process each."""
    opened: Mapping[tuple[str, str, int], Sequence[float]]
    """When each generation was started, by live, Worker and epoch."""
    at_once: Sequence[str] = ()
    """Generations that had two runtimes at once."""


def read_records(folder: Path, besides: str = "") -> Records:
    """Read the records of all Workers, except those of the name `besides`: it is hostile, and may well have acked what
    it did not consume."""
    consumed, most, at_once = [], dict[str, int](), []
    opened: dict[tuple[str, str, int], list[float]] = defaultdict(list)
    for file in sorted(folder.glob("*.ndjson")):
        running = set()
        for line in file.read_bytes().splitlines():
            one = json.loads(line)
            if besides and name_of(one["worker"]) == besides:
                continue
            generation = (one["live"], one["worker"], one["epoch"])
            most[file.stem] = max(most.get(file.stem, 0), one["running"])
            match one["event"]:
                case "open":
                    at_once += [f"{generation}"] if generation in running else []
                    opened[generation].append(one["t"])
                    running.add(generation)
                case "close":
                    running.discard(generation)
                case "item":
                    given = {name: one[name] for name in Consumed._fields[:-1]}
                    consumed.append(Consumed(**given, run=len(opened[generation])))
    return Records(sorted(consumed), most, opened, at_once)


class TakenBack(NamedTuple):
    """The books of a history that was lost between two times. `said`: a controller said that it is lost; `silent` are
    the processes that ended before they could."""

    since: float
    until: float
    accounts: Mapping[str, Account]
    said: bool
    silent: Collection[int]


def check(
    records: Records,
    told: Mapping[str, Told],
    accounts: Mapping[str, Account],
    capacity: int,
    lost: Sequence[TakenBack] = (),
    besides: str = "",
    credit: int = CREDIT,
) -> list[str]:
    """Everything that must be true of what was consumed. `accounts` are of the store's history in the end; `besides` is
    the name of a hostile Worker, which is not believed; `credit` is that of the Infer-Controllers."""
    by_live: dict[str, list[Consumed]] = defaultdict(list)
    for one in records.consumed:
        by_live[one.live].append(one)
    found = [*over_capacity(records, capacity), *stored(told, accounts, lost), *one_runtime(records, lost)]
    for live in {*accounts, *by_live, *(live for each in lost for live in each.accounts)}:
        items = by_live[live]
        histories = [(accounts[live], float("inf"))] if live in accounts else []
        histories += [(each.accounts[live], each.until) for each in lost if live in each.accounts]
        found += granted(live, items, [account for account, _ in histories])
        for account, until in histories:
            own = of_history(items, account, until) if lost else items
            found += [*settled(live, account, items, besides), *planned(live, account, own)]
            found += superseded(live, own, credit)
    return [*dict.fromkeys(found)]


def of_history(items: Iterable[Consumed], account: Account, until: float) -> list[Consumed]:
    """What was consumed because this history, which ended at this time, had handed it out. Only of the first runtime of
    each generation: another one may have the same items by another history."""
    return [
        one
        for one in items
        if one.t < until
        and one.run == 1
        and (one.epoch, one.seq) in account.released
        and account.content.get(one.seq) == one.text
    ]


def over_capacity(records: Records, capacity: int) -> Iterator[str]:
    for process, most in records.running_max.items():
        if most > capacity:
            yield f"I4: process {process} ran {most} runtimes at once, its capacity is {capacity}"


def one_runtime(records: Records, lost: Sequence[TakenBack]) -> Iterator[str]:
    """A generation has one runtime; another one, after the first, only where the store has forgotten that it left."""
    for twice in records.at_once:
        yield f"I2: {twice} had two runtimes at once"
    for generation, times in records.opened.items():
        for first, again in pairwise(times):
            if not any(first < each.until and each.since < again for each in lost):
                yield f"I2: {generation} had a second runtime, and the store was not set back in between"


def stored(
    told: Mapping[str, Told], accounts: Mapping[str, Account], histories: Sequence[TakenBack] = ()
) -> Iterator[str]:
    """What an application was told is what is in the store: accepted once, in order, and nothing else. What was taken
    back was in a history that is lost, and somebody said so.

    An item that was lost may come back (`stored_again`): a copy of its request was on its way, in a controller that was
    frozen, say. Then the item stands behind others that were accepted since."""
    for live, known in told.items():
        account = accounts.get(f"default/{live}")
        found = [account.content[seq] for seq in sorted(account.content)] if account else []
        times = Counter(found)
        back = {text: were for text in taken_back(known, accounts) if (were := with_item(live, text, histories))}
        lost = [text for text in known.accepted if not times[text] and text not in back]
        unsaid = [
            text
            for text, were in back.items()
            if not any(each.said or known.accepted_by.get(text) in each.silent for each in were)
        ]
        twice = [text for text, count in times.items() if count > 1]
        strange = [text for text in found if text not in {*known.accepted, *known.unknown}]
        aside = {*known.unknown, *back, *(stored_again(live, account, histories) if account else ())}
        in_order = [text for text in found if text not in aside]
        if lost:
            yield f"I6: {live}: accepted and not stored: {lost[:5]}"
        if unsaid:
            yield f"I6: {live}: accepted and lost, and nobody said so: {unsaid[:5]}"
        if twice:
            yield f"I6: {live}: stored twice: {twice[:5]}"
        if strange:
            yield f"I6: {live}: stored although nobody was told so: {strange[:5]}"
        if not lost and not strange and in_order != [text for text in known.accepted if text not in aside]:
            yield f"I6: {live}: stored in another order than accepted"


def taken_back(known: Told, accounts: Mapping[str, Account]) -> list[str]:
    """The items that an application was told are accepted and that the store does not have in the end."""
    account = accounts.get(f"default/{known.live}")
    there = {*account.content.values()} if account else set()
    return [text for text in known.accepted if text not in there]


def with_item(live: str, text: str, histories: Sequence[TakenBack]) -> list[TakenBack]:
    return [each for each in histories if text in each.accounts.get(f"default/{live}", Account()).content.values()]


def stored_again(live: str, account: Account, histories: Sequence[TakenBack]) -> set[str]:
    """The items that have another number in a history that was lost: the store forgot that it had them, so a repeat of
    their request that was late stored them once more, behind what was accepted meanwhile."""
    there = {*account.content.values()}
    lost = [row for each in histories for row in each.accounts.get(f"default/{live}", Account()).content.items()]
    return {text for seq, text in lost if text in there and account.content.get(seq) != text}


def settled(live: str, account: Account, items: Iterable[Consumed], besides: str = "") -> Iterator[str]:
    """Every number is acked by a generation that consumed it, or dropped for a reason, or still pending."""
    consumed = {(one.worker, one.epoch, one.seq, one.text) for one in items}
    for seq, text in account.content.items():
        owner = account.acked_by.get(seq)
        if owner is not None and (*owner, seq, text) not in consumed and not (besides and name_of(owner[0]) == besides):
            yield f"I6: {live}: {owner[0]}@{owner[1]} acked {seq} ({text}) and never consumed it"
        if owner is None and seq not in account.dropped and seq <= max(account.acked_by, default=0):
            yield f"I6: {live}: {seq} ({text}) was passed over"


def granted(live: str, items: list[Consumed], histories: Sequence[Account]) -> Iterator[str]:
    """A generation consumes what is its own, in order, and nothing that was settled before it began."""
    generations = {epoch: each for account in histories for epoch, each in account.generations.items()}
    by_epoch = by_generation(items)
    for one in items:
        if one.text not in (texts := [account.content.get(one.seq) for account in histories]):
            yield f"I6: {live}: {one.seq} is {' or '.join(map(repr, texts))} and {one.text!r} was consumed"
    for epoch, ones in by_epoch.items():
        generation = generations.get(epoch)
        if generation is None or {one.worker for one in ones} != {generation.worker}:
            yield f"I1: {live}@{epoch} was consumed by {sorted({one.worker for one in ones})}, placed: {generation}"
            continue
        first = min(one.seq for one in ones)
        if first <= generation.acked:
            yield f"I6: {live}@{epoch} consumed {first}, settled up to {generation.acked} before it began"
        for one, following in pairwise(ones):
            in_order = following.seq == one.seq + 1 or (following.kind == "interrupt" and following.seq > one.seq)
            if not in_order and following.run == one.run:
                yield f"I6: {live}@{epoch} consumed {following.seq} after {one.seq}"


def planned(live: str, account: Account, items: list[Consumed]) -> Iterator[str]:
    """A planned move repeats nothing."""
    by_epoch = by_generation(items)
    for epoch in by_epoch.keys() & account.generations.keys():
        left = {one.seq for before in left_by_plan(epoch, account) for one in by_epoch.get(before, ())}
        if again := left & {one.seq for one in by_epoch[epoch]}:
            yield f"I6: {live}@{epoch}: a planned move repeated {sorted(again)[:5]}"


def by_generation(items: Iterable[Consumed]) -> dict[int, list[Consumed]]:
    found: dict[int, list[Consumed]] = defaultdict(list)
    for one in items:
        found[one.epoch].append(one)
    return dict(sorted(found.items()))


def left_by_plan(epoch: int, account: Account) -> Iterator[int]:
    """The generations that were left by planned moves alone, up to this one. What one before them took along when it
    died is delivered again, by whichever of these comes to it."""
    for before in sorted((each for each in account.generations if each < epoch), reverse=True):
        if not account.generations[epoch].planned:
            return
        yield before
        epoch = before


def superseded(live: str, items: list[Consumed], credit: int = CREDIT) -> Iterator[str]:
    """After a later generation has begun to consume, an older one finishes what it has in hand, and no more."""
    first: dict[int, float] = {}
    for one in items:
        first.setdefault(one.epoch, one.t)
    for epoch in first:
        later = min((t for other, t in first.items() if other > epoch), default=float("inf"))
        late = [one.seq for one in items if one.epoch == epoch and one.t > later]
        if len(late) > credit:
            yield f"I2: {live}@{epoch} consumed {len(late)} items after it was superseded, the credit is {credit}"


def consumed_twice(records: Records) -> int:
    times = Counter((one.live, one.text) for one in records.consumed)
    return sum(count - 1 for count in times.values())
