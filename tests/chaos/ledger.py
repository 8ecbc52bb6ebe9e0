"""What the Workers consumed against what the applications were told and what the store recorded: I6, from outside.

Each function returns the violations it sees, as sentences.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

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


class Records(NamedTuple):
    """All that the runtimes wrote down."""

    consumed: list[Consumed]
    running_max: dict[str, int]
    """The most runtimes at once, by file: one process each."""
    opened: int


def read_records(folder: Path) -> Records:
    consumed, most, opened = [], dict[str, int](), 0
    for file in sorted(folder.glob("*.ndjson")):
        for line in file.read_bytes().splitlines():
            one = json.loads(line)
            most[file.stem] = max(most.get(file.stem, 0), one["running"])
            opened += one["event"] == "open"
            if one["event"] == "item":
                consumed.append(Consumed(*(one[name] for name in Consumed._fields)))
    return Records(sorted(consumed), most, opened)


def check(records: Records, told: Mapping[str, Told], accounts: Mapping[str, Account], capacity: int) -> list[str]:
    """Everything that must be true of what was consumed."""
    by_live: dict[str, list[Consumed]] = defaultdict(list)
    for one in records.consumed:
        by_live[one.live].append(one)
    return [
        *over_capacity(records, capacity),
        *stored(told, accounts),
        *(line for live, account in accounts.items() for line in settled(live, account, by_live[live])),
        *(line for live, items in by_live.items() for line in granted(live, items, accounts.get(live, Account()))),
        *(line for live, items in by_live.items() for line in superseded(live, items)),
    ]


def over_capacity(records: Records, capacity: int) -> Iterator[str]:
    for process, most in records.running_max.items():
        if most > capacity:
            yield f"I4: process {process} ran {most} runtimes at once, its capacity is {capacity}"


def stored(told: Mapping[str, Told], accounts: Mapping[str, Account]) -> Iterator[str]:
    """What an application was told is what is in the store: accepted once, in order, and nothing else."""
    for live, known in told.items():
        account = accounts.get(f"default/{live}")
        found = [account.content[seq] for seq in sorted(account.content)] if account else []
        times = Counter(found)
        lost = [text for text in known.accepted if not times[text]]
        twice = [text for text, count in times.items() if count > 1]
        strange = [text for text in found if text not in {*known.accepted, *known.unknown}]
        in_order = [text for text in found if text not in known.unknown]
        if lost:
            yield f"I6: {live}: accepted and not stored: {lost[:5]}"
        if twice:
            yield f"I6: {live}: stored twice: {twice[:5]}"
        if strange:
            yield f"I6: {live}: stored although nobody was told so: {strange[:5]}"
        if not lost and not strange and in_order != [text for text in known.accepted if text not in known.unknown]:
            yield f"I6: {live}: stored in another order than accepted"


def settled(live: str, account: Account, items: Iterable[Consumed]) -> Iterator[str]:
    """Every number is acked by a generation that consumed it, or dropped for a reason, or still pending."""
    by_generation = {(one.worker, one.epoch, one.seq) for one in items}
    for seq, text in account.content.items():
        owner = account.acked_by.get(seq)
        if owner is not None and (*owner, seq) not in by_generation:
            yield f"I6: {live}: {owner[0]}@{owner[1]} acked {seq} ({text}) and never consumed it"
        if owner is None and seq not in account.dropped and seq <= max(account.acked_by, default=0):
            yield f"I6: {live}: {seq} ({text}) was passed over"


def granted(live: str, items: list[Consumed], account: Account) -> Iterator[str]:
    """A generation consumes what is its own, in order, and nothing that was settled before it began."""
    by_epoch: dict[int, list[Consumed]] = defaultdict(list)
    for one in items:
        by_epoch[one.epoch].append(one)
        if account.content.get(one.seq) != one.text:
            yield f"I6: {live}: {one.seq} is {account.content.get(one.seq)!r} and {one.text!r} was consumed"
    for epoch, ones in sorted(by_epoch.items()):
        generation = account.generations.get(epoch)
        if generation is None or {one.worker for one in ones} != {generation.worker}:
            yield f"I1: {live}@{epoch} was consumed by {sorted({one.worker for one in ones})}, placed: {generation}"
            continue
        if ones[0].seq <= generation.acked:
            yield f"I6: {live}@{epoch} consumed {ones[0].seq}, settled up to {generation.acked} before it began"
        for one, following in pairwise(ones):
            if following.seq != one.seq + 1 and not (following.kind == "interrupt" and following.seq > one.seq):
                yield f"I6: {live}@{epoch} consumed {following.seq} after {one.seq}"
        left = {one.seq for before in left_by_plan(epoch, account) for one in by_epoch[before]}
        if again := left & {one.seq for one in ones}:
            yield f"I6: {live}@{epoch}: a planned move repeated {sorted(again)[:5]}"


def left_by_plan(epoch: int, account: Account) -> Iterator[int]:
    """The generations that were left by planned moves alone, up to this one. What one before them took along when it
    died is delivered again, by whichever of these comes to it."""
    for before in sorted((each for each in account.generations if each < epoch), reverse=True):
        if not account.generations[epoch].planned:
            return
        yield before
        epoch = before


def superseded(live: str, items: list[Consumed]) -> Iterator[str]:
    """After a later generation has begun to consume, an older one finishes what it has in hand, and no more."""
    first: dict[int, float] = {}
    for one in items:
        first.setdefault(one.epoch, one.t)
    for epoch in first:
        later = min((t for other, t in first.items() if other > epoch), default=float("inf"))
        late = [one.seq for one in items if one.epoch == epoch and one.t > later]
        if len(late) > CREDIT:
            yield f"I2: {live}@{epoch} consumed {len(late)} items after it was superseded, the credit is {CREDIT}"


def consumed_twice(records: Records) -> int:
    times = Counter((one.live, one.seq) for one in records.consumed)
    return sum(count - 1 for count in times.values())
