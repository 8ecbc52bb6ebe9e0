"""Outcomes and state as a scenario writes them: in words, short, in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields

from dhsched.ownership import items, outcomes
from dhsched.ownership.outcomes import Outcome
from dhsched.ownership.state import Cell, Live, State, Worker
from dhsched.ownership.steps.emit import read_emit
from dhsched.types import Generation
from tests.conformance.subjects import Home
from tests.scenarios.language import outcome_word

# -- an outcome in words


@dataclass(frozen=True, slots=True)
class Said:
    """`words` must be given exactly; `payload` and `details` may be asked for."""

    word: str
    words: tuple[str, ...] = ()
    payload: tuple[str, ...] = ()
    details: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        details = (f"{name}={value}" for name, value in self.details.items())
        return " ".join([self.word, *self.words, *self.payload, *details])


def say(outcome: Outcome | Home, now: int) -> Said:
    """The outcome as a scenario writes it, WorkerIDs in full."""
    words: tuple[object, ...] = ()
    payload: tuple[str, ...] = ()
    details: dict[str, object] = {}
    match outcome:
        case outcomes.Stale():
            words, details = (outcome.current or "nobody",), {"pull_no": outcome.pull_no}
        case outcomes.Entered():
            words = (outcome.home, *flag("again", outcome.again))
            details = {"pos": outcome.pos, "homes": ",".join(f"{each.name}:{each.pos}" for each in outcome.homes)}
        case outcomes.Registered():
            words = (outcome.worker, *flag("cordoned", outcome.mode != "ready"), *flag("again", outcome.again))
        case outcomes.Reported():
            words = flag("unchanged", outcome.table is None)
            details = {"beat": outcome.beat, "home": outcome.home, "term": outcome.term, "rev": outcome.rev}
            details["mode"] = outcome.mode
            details["table"] = ",".join(
                f"{in_short(k)}:{v or 'gone'}" for k, v in sorted((outcome.table or {}).items())
            )
            details["base"] = outcome.base
        case outcomes.WorkerSet():
            words = (outcome.mode, *flag("gone", outcome.gone))
        case outcomes.Committed():
            words = (outcome.generation, *flag("again", outcome.again))
            words += ("superseded", "by", outcome.superseded_by) if outcome.superseded_by else ()
            details = {"rev": outcome.rev, "load": outcome.load, "refused": refused(outcome.refusals)}
        case outcomes.Full() | outcomes.Starting() | outcomes.Waiting():
            details = {"refused": refused(outcome.refusals)}
        case outcomes.Reserved():
            words = (f"{outcome.target}@{outcome.number}", *flag("again", outcome.again))
        case outcomes.Pulling():
            words = (outcome.pull_no, "after", outcome.after)
            details = {"digital_id": outcome.digital_id, "room": outcome.room, "metadata": quoted(outcome.metadata)}
            details |= {"config": quoted(outcome.config), "state": quoted(outcome.saved)}
            details |= {"journal_last": outcome.journal_last, "journal": show_journal(outcome.journal or ())}
        case outcomes.Items():
            words = (f"{outcome.first}..{outcome.first + len(outcome.items) - 1}",)
            payload = tuple(show_item(blob) for blob in outcome.items)
            details = {"more": int(outcome.more)}
        case outcomes.Appended():
            words, details = (outcome.seq, *flag("released", bool(outcome.mark))), {"dropped": outcome.dropped}
        case outcomes.Duplicate():
            details = {"seq": outcome.seq}
        case outcomes.Acked():
            words = (outcome.acked, *flag("ended", outcome.ended))
        case outcomes.Recover():
            words = (Generation(outcome.worker, outcome.epoch), outcome.need)
            details = {"digital_id": outcome.digital_id, "priority": outcome.priority, "tries": outcome.tries}
        case outcomes.Later():
            words = (f"{outcome.at - now}ms",)
        case outcomes.NewTerm():
            words = (outcome.term, "floor", outcome.floor)
        case _:
            words = tuple(getattr(outcome, each.name) for each in fields(outcome))
    said = {name: str(value) for name, value in details.items()}
    return Said(outcome_word(type(outcome)), tuple(str(each) for each in words), payload, said)


def flag(word: str, raised: bool) -> tuple[str, ...]:
    return (word,) if raised else ()


def refused(refusals: Iterable[outcomes.Refusal]) -> str:
    return ",".join(f"{r.worker}:{r.reason}:{r.load}/{r.capacity}" for r in refusals)


def quoted(value: bytes) -> str:
    return f'"{value.decode(errors="backslashreplace")}"'


def show_item(blob: bytes) -> str:
    """A text is its payload; anything else says what it is."""
    item = items.read(blob)
    if item.kind == "text":
        return quoted(item.payload)
    brought = f"+config:{quoted(item.config)}" if item.kind == "interrupt" and item.config is not None else ""
    return f"{item.kind}:{quoted(item.payload)}{brought}"


def show_journal(entries: Iterable[bytes]) -> str:
    return ",".join(entry.decode() for entry in entries) or "none"


def in_full(live: str) -> str:
    return live if "/" in live else f"t/{live}"


def in_short(name: str) -> str:
    return name.removeprefix("t/")


# -- a state in words


def show_live(record: Live) -> dict[str, str]:
    """The fields of a live that a scenario can check."""
    names = (
        "epoch issued selected active pull_no controller state appended released acked at_boundary"
        " expired forgot dropped dropped_interrupt dropped_end dropped_poison starts tries priority immovable"
    )
    move = record.move
    return {name: plain(getattr(record, name)) for name in names.split()} | {
        "pending": str(len(record.pending)),
        "seen": str(record.seen[0]),
        "move": f"{move.target}@{move.number}" if move else "none",
        "hold": plain(move.hold if move else None),
        "suspect": ":".join(map(str, record.suspect)) if record.suspect else "none",
        "stalled": plain(record.stalled is not None and record.stalled == record.cursors),
        "waits": ",".join(record.waits) or "none",
        "config": quoted(record.config),
        "labels": quoted(record.labels),
        "fallback": "none" if record.fallback is None else quoted(record.fallback),
        "saved": quoted(record.saved),
        "journal": f"{record.journal.last}:{show_journal(record.journal.entries)}",
        "dead": ",".join(show_item(items.read_dead_letter(blob)[0]) for blob in record.dead) or "none",
        "died_of": ",".join(quoted(items.read_dead_letter(blob)[1].encode()) for blob in record.dead) or "none",
        "history": ",".join(f"{row.worker}@{row.epoch}" for row in (*record.history, record.current)),
        "reasons": ",".join(quoted(row.reason.encode()) for row in (*record.history, record.current)),
        "cause": record.current.cause,
        "interrupted": ":".join(map(str, record.interrupted)) if record.interrupted[0] else "none",
        "emits": ",".join(f"{epoch}.{n}:{name}" for epoch, n, name, _ in map(read_emit, record.emits)) or "none",
        "emitted": ".".join(map(str, record.emitted)) if record.emitted[0] else "none",
    }


def show_cell(cell: Cell) -> dict[str, str]:
    counts = {each.name: str(getattr(cell, each.name)) for each in fields(cell) if each.name != "homes"}
    return {**counts, "home": cell.home or "none", "homes": ",".join(home.name for home in cell.homes) or "none"}


def show_worker(record: Worker) -> dict[str, str]:
    names = "pool capacity mode lost gone beat load starting cutovers pace"
    names += " starts_create_max starts_recover_max cutovers_max"
    return {name: plain(getattr(record, name)) for name in names.split()}


def plain(value: object) -> str:
    if value is None:
        return "none"
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


def check_agenda(state: State, live: str, now: int) -> dict[str, str]:
    for number, entries in state.agenda.items():
        if in_full(live) in entries:
            return {"in": f"{max(0, entries[in_full(live)] - now)}ms", "class": str(number)}
    return {}


def ranked(scores: Mapping[str, float]) -> list[str]:
    return [in_short(name) for name, _ in sorted(scores.items(), key=lambda entry: (entry[1], entry[0]))]


CHECK: dict[str, Callable[[State, str, int], dict[str, str] | list[str]]] = {
    "slots": lambda state, w, now: {in_short(tag): slot for tag, slot in state.slots.get(w, {}).items()},
    "live": lambda state, live, now: show_live(state.lives[in_full(live)]) if in_full(live) in state.lives else {},
    "worker": lambda state, w, now: show_worker(state.workers[w]) if w in state.workers else {},
    "cell": lambda state, _, now: show_cell(state.cell),
    "free": lambda state, pool, now: ranked(state.free.get(pool, {})),
    "waiting": lambda state, pool, now: ranked(state.waiting.get(pool, {})),
    "agenda": check_agenda,
    "wakes": lambda state, _, now: sorted(f"{channel}:{in_short(about)}".rstrip(":") for channel, about in state.wakes),
}


def listed(value: object) -> str:
    if isinstance(value, dict):
        return " ".join(f"{name}={each}" for name, each in value.items()) or "none"
    return " ".join(map(str, value)) if isinstance(value, list) and value else "none"


def describe(state: State, now: int) -> list[str]:
    """Where everything stands, for the reader of a failure: what is as it was at the start is left out."""
    dull = {"", "0", "no", "none", '""'}
    lines = [f"at {now}ms: {listed(CHECK['cell'](state, '', now))}"]
    for worker, record in state.workers.items():
        slots = {in_short(tag): slot for tag, slot in state.slots.get(worker, {}).items()}
        shown = {name: value for name, value in show_worker(record).items() if value not in dull}
        lines.append(f"{worker}: {listed(shown)} | slots {listed(slots)}")
    for live, lively in state.lives.items():
        shown = {name: value for name, value in show_live(lively).items() if value not in dull}
        agenda = check_agenda(state, live, now)
        lines.append(f"{in_short(live)}: {listed(shown)} | agenda {listed(agenda)}")
    waiting = {pool: ",".join(ranked(scores)) for pool, scores in state.waiting.items()}
    return [*lines, f"waiting: {listed(waiting)}"] if waiting else lines
