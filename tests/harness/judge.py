"""Hold what clients were told against the protocol's promises."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Line = dict[str, Any]


class Judge:
    """Who owns what, by the answers alone."""

    def __init__(self) -> None:
        self.owners: dict[tuple[str, int], str] = {}  # (live, epoch) to Worker, for ever.
        self.reserved: dict[tuple[str, int], str] = {}
        self.issued: dict[str, int] = {}
        self.epoch: dict[str, int] = {}  # Of each live that has not ended.
        self.floor = 0
        self.capacity: dict[str, int] = {}
        self.pulls: dict[tuple[str, int], int] = {}  # The latest, by (live, epoch).
        self.last_item: dict[tuple[str, int, int], int] = {}  # Of each (live, epoch, pull): what it has.
        self.acked: dict[tuple[str, int], int] = {}  # Of each (live, epoch): by whichever pull it was said.
        self.content: dict[str, dict[int, str]] = {}

    def take(self, step: str, a: Line, outcome: Line) -> Iterator[str]:
        match step, outcome["is"]:
            case "register_worker", "Registered":
                self.capacity.setdefault(outcome["worker"], a["capacity"])
            case "place", "Committed":
                yield from self.committed(a["live"], outcome)
            case "reserve", "Reserved":
                yield from self.reserve(a["live"], outcome)
            case "release_input", "Items":
                yield from self.fenced(a)
                yield from self.items(a, outcome)
            case "pull", "Pulling":
                yield from self.fenced(a)
                self.pulls[a["live"], a["epoch"]] = outcome["pull_no"]
                self.last_item[a["live"], a["epoch"], outcome["pull_no"]] = outcome["after"]
            case "ack_input", "Acked":
                yield from self.fenced(a)
                self.acked[a["live"], a["epoch"]] = outcome["acked"]
            case "emit", "Emitted":
                yield from self.fenced(a)
            case "report", "Reported":
                # Of differences, those that are there: the Worker holds these slots, and perhaps others.
                yield from self.holds(a["worker"], sum(map(bool, (outcome["table"] or {}).values())))
            case "new_term", "NewTerm":
                self.floor = outcome["floor"]
            case _, "Full" | "Starting" | "Waiting":
                for refusal in outcome["refusals"]:
                    yield from self.holds(refusal["worker"], refusal["load"])
        if outcome.get("ended") or (step, outcome.get("state")) == ("end_live", "ended"):
            self.epoch.pop(a["live"], None)

    def committed(self, live: str, outcome: Line) -> Iterator[str]:
        worker, epoch = outcome["generation"]["worker"], outcome["generation"]["epoch"]
        owner = self.owners.setdefault((live, epoch), worker)
        if owner != worker:
            yield f"I1: {live} epoch {epoch} is of {owner} and of {worker}"
        if outcome["again"]:
            return
        yield from self.holds(worker, outcome["load"])
        if (live, epoch) in self.reserved:
            if self.reserved.pop((live, epoch)) != worker:
                yield f"{live}@{epoch} was committed on {worker}, and reserved elsewhere"
        else:
            yield from self.issue(live, epoch)
        if epoch <= self.epoch.get(live, 0):
            yield f"I0: {live} went from epoch {self.epoch[live]} to {epoch}"
        if live not in self.epoch:
            self.content[live] = {}
        self.epoch[live] = epoch

    def reserve(self, live: str, outcome: Line) -> Iterator[str]:
        if not outcome["again"]:
            yield from self.issue(live, outcome["number"])
            self.reserved[live, outcome["number"]] = outcome["target"]

    def issue(self, live: str, number: int) -> Iterator[str]:
        if number <= self.issued.get(live, 0):
            yield f"I0: {number} was issued for {live} after {self.issued[live]}"
        self.issued[live] = number

    def holds(self, worker: str, load: int) -> Iterator[str]:
        if load > self.capacity.get(worker, load):
            yield f"I4: {worker} holds {load} slots of {self.capacity[worker]}"

    def fenced(self, a: Line) -> Iterator[str]:
        live, worker, epoch = a["live"], a["worker"], a["epoch"]
        if self.epoch.get(live) != epoch or self.owners.get((live, epoch)) != worker or epoch <= self.floor:
            now = f"epoch {self.epoch.get(live)} and the floor is {self.floor}"
            yield f"I2: {worker}@{epoch} passed the guard of {live}, which is at {now}"

    def items(self, a: Line, outcome: Line) -> Iterator[str]:
        live, first, key = a["live"], outcome["first"], (a["live"], a["epoch"], a["pull_no"])
        if self.pulls.get((live, a["epoch"])) != a["pull_no"]:
            yield f"I2: {key} was handed {first}, and the latest pull is {self.pulls.get((live, a['epoch']))}"
        # What an earlier pull of this generation acked is not handed out again, nor what the caller says that it has.
        has = max(self.last_item.get(key, 0), self.acked.get((live, a["epoch"]), 0), a.get("after", 0))
        skipped = key in self.last_item and first > has + 1
        if skipped and outcome["items"][0][0] not in "IJ":  # Only an interrupt passes over what was before it.
            yield f"I6: {key} was handed {first} after {self.last_item[key]}"
        self.last_item[key] = max(self.last_item.get(key, 0), first + len(outcome["items"]) - 1)
        for seq, item in enumerate(outcome["items"], start=first):
            if self.content.setdefault(live, {}).setdefault(seq, item) != item:
                yield f"I6: item {seq} of {live} was {self.content[live][seq]!r} and is {item!r}"
