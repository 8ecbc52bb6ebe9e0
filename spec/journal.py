"""The world of spec/Journal.tla: a live's journal on a store that forgets, explored with the product's functions.

Projection, in the order of the specification's variables:
    epoch, acked, last, list    of the store; an entry is the sequence of items that it is about, each with the
                    generation that had it
    kept, losses, begun         of the surroundings, as the specification says
    runs            per generation: the item that it is at; its journal (`worker.journal.Journal`): the number of the
                    first entry, and the entries; the same as of its last ack, and the item of that ack
    acks            every different ack that was sent, in order
What an ack does to the journal is `changed`; what a runtime writes and sends is its `Journal`. The fence, input and
marks are explored by the other worlds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dhsched.ownership.journal import Change, changed
from dhsched.ownership.limits import Limits
from dhsched.ownership.state import Journal as Stored
from dhsched.worker.journal import Journal
from spec.configuration import Configuration
from spec.explore import Move

Entries = tuple[tuple[tuple[int, int], ...], ...]
Run = tuple[Any, ...]
Key = tuple[Any, ...]


class Journals:
    """`World` for spec/explore.py."""

    variables: tuple[str, ...] = ("epoch", "acked", "last", "list", "kept", "losses", "begun", "runs", "acks")

    def __init__(self, configuration: Configuration, *, strict: bool = False) -> None:
        self.c = configuration
        self.on = configuration.on
        self.limits = Limits()

    def initial(self) -> Key:
        return (0, 0, 0, ()), (0, 0, 0, ()), 0, 0, ((),) * self.c["MaxN"], ()

    def problems(self, key: Key) -> Iterator[str]:
        _, acked, _, entries = key[0]
        written = [item for entry in entries for item in entry]
        if [item for item, _ in written] != [*range(1, acked + 1)]:
            yield f"Exact: everything up to {acked} is acked, and the journal is about {written}"
        known = {item for entry in key[4][key[0][0] - 1][2] for item in entry} if key[0][0] else set()
        if not known.issuperset(written):
            yield f"Known: the journal is about {written}, and its generation knows {known}"

    def projection(self, key: Key) -> tuple[Any, ...]:
        return (*key[0], *key[1:])

    def moves(self, key: Key) -> Iterator[Move]:
        store, kept, losses, begun, runs, acks = key
        epoch, acked, last, entries = store
        if begun < self.c["MaxN"]:
            first = last - len(entries) + 1
            run = (acked, first, entries, 0, first, last, entries)
            yield "begin", ((begun + 1, *store[1:]), kept, losses, begun + 1, put(runs, begun + 1, run), acks), ()
        if losses < self.c["Forgets"] and kept != store:
            yield "keep", (store, store, *key[2:]), ()
            yield "forget", (kept, kept, losses + 1, *key[3:]), ()
        for e in range(1, begun + 1):
            yield from self.of_run(key, e)
        for ack in acks:
            e, n, drop, first, brought = ack
            after = changed(stored(last, entries), Change(drop, first, as_bytes(brought)), self.limits)
            if e == epoch and isinstance(after, Stored):
                now = (epoch, max(acked, n), after.last, as_items(after.entries))
                yield f"the store takes {ack}", (now, *key[1:]), ()

    def of_run(self, key: Key, e: int) -> Iterator[Move]:
        store, runs, acks = key[0], key[4], key[5]
        run = runs[e - 1]
        if run[0] < self.c["Items"]:
            journal = journal_of(run)
            journal.append(as_bytes((((run[0] + 1, e),),))[0])
            yield f"{e} works", (*key[:4], put(runs, e, run_of(run[0] + 1, journal, run[3])), acks), ()
        if "replaces" in self.on and len(run[2]) > 1:
            journal = journal_of(run)
            journal.replace(as_bytes((tuple(item for entry in run[2] for item in entry),)))
            yield f"{e} replaces", (*key[:4], put(runs, e, run_of(run[0], journal, run[3])), acks), ()
        if len(acks) == self.c["Acks"]:
            return
        journal = journal_of(run)
        if (change := journal.acked()) is not None:
            said = say(acks, (e, run[0], change.drop, change.first, as_items(change.entries)))
            yield f"{e} acks", (*key[:4], put(runs, e, run_of(run[0], journal, run[0])), said), ()
        if store[0] == e and run[3] and (change := journal_of(run).acked_since(store[2])) is not None:
            said = say(acks, (e, run[3], change.drop, change.first, as_items(change.entries)))
            yield f"{e} acks again", (*key[:5], said), ()


# -- the product's values, and those of the specification


def stored(last: int, entries: Entries) -> Stored:
    return Stored(last, as_bytes(entries))


def as_bytes(entries: Entries) -> tuple[bytes, ...]:
    return tuple(" ".join(f"{item}@{e}" for item, e in entry).encode() for entry in entries)


def as_items(entries: tuple[bytes, ...] | list[bytes]) -> Entries:
    return tuple(tuple(item_of(each) for each in entry.split()) for entry in entries)


def item_of(written: bytes) -> tuple[int, int]:
    item, _, e = written.partition(b"@")
    return int(item), int(e)


def journal_of(run: Run) -> Journal:
    _, first, entries, _, acked_first, acked_last, acked = run
    journal = Journal(first + len(entries) - 1, as_bytes(entries))
    journal._acked, journal._acked_first, journal._acked_last = [*as_bytes(acked)], acked_first, acked_last
    if acked_first == first:
        journal._acked = journal._entries
    return journal


def run_of(pos: int, journal: Journal, acked_pos: int) -> Run:
    acked = journal._acked[: journal._acked_last - journal._acked_first + 1]
    written = as_items(journal._entries)
    return pos, journal._first, written, acked_pos, journal._acked_first, journal._acked_last, as_items(acked)


def put(runs: tuple[Run, ...], e: int, run: Run) -> tuple[Run, ...]:
    return (*runs[: e - 1], run, *runs[e:])


def say(acks: tuple[Any, ...], ack: Any) -> tuple[Any, ...]:
    return acks if ack in acks else (*acks, ack)
