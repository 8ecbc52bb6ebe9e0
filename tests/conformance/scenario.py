"""The runner of tests/scenarios/*.txt: it holds a subject to every line of a scenario.

The language is in tests/scenarios/language.py. After every step the invariants are checked as well: of the state, of
the step, of work with an old epoch, and of the trace of releases. A line that fails says what it expected, what came,
and how the lives and Workers stand.
"""

from __future__ import annotations

import re
from typing import Any

from dhsched.ownership import invariants, outcomes
from dhsched.ownership.items import UNMARKED, Through
from dhsched.ownership.journal import Change
from dhsched.ownership.outcomes import Outcome
from dhsched.ownership.state import State
from dhsched.ownership.steps.place import Create
from dhsched.types import MARK_BYTES, Equals, slot_tag
from tests.conformance.shown import CHECK, Said, describe, in_full, listed, say
from tests.conformance.subjects import Home, Subject
from tests.harness.rows import candidate_of
from tests.scenarios.language import CHECKS, SET_VERBS, Line, Scenario, ScenarioError

Arguments = dict[str, Any]
CREATE_OPTIONS = (
    "digital_id",
    "fingerprint",
    "room",
    "metadata",
    "config",
    "priority",
    "immovable",
    "idle_ms",
    "max_ms",
    "labels",
)
REFERENCE = re.compile(r"(?<![\w#'/])[A-K]\d*'*(?![\w#])")


async def run(scenario: Scenario, subject: Subject) -> None:
    """Hold the subject to every line."""
    runner = Runner(subject)
    for line in scenario.lines:
        await runner.take(line)


class Runner:
    """The callers of one scenario: what they were told, and what they therefore say where a line leaves it open."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.ids: dict[str, str] = {}  # Label to WorkerID; a bare name is its latest boot.
        self.boots: dict[str, str] = {}  # WorkerID to boot.
        self.tables: dict[str, tuple[str, int, int]] = {}  # WorkerID to home, term and rev of the table it has.
        self.server = ""  # The server's name.
        self.pulls: dict[tuple[str, str, int], tuple[int, int]] = {}  # Generation to its latest pull and last item.
        self.trace = invariants.Releases()

    async def take(self, line: Line) -> None:
        if line.verb == "wait":
            await self.subject.wait(line.values["duration"])
        elif line.verb == "remember":
            await self.subject.remember()
        elif line.verb == "forget":
            await self.subject.forget()
            self.trace = invariants.Releases()
        elif line.verb == "server":
            self.server = line.values["word"]
            await self.subject.serve(self.server)
        elif line.verb == "greeted":
            await self.subject.greet(line.values["word"])
        elif line.verb == "check":
            self.check(line, await self.subject.state())
        elif line.verb == "worker":
            await self.step(line, "register_worker", self.arguments(line, State()))
            worker = self.worker(line.values["boot"], line)
            await self.step(line, "report", {"worker": worker, "boot": self.boots[worker]})
        else:
            given = self.arguments(line, await self.subject.state())
            now = self.subject.now
            outcome = await self.step(line, line.step, given)
            self.compare(line, say(outcome, now), await self.subject.state())

    async def step(self, line: Line, name: str, given: Arguments) -> Outcome | Home:
        """One step, and everything that must hold after it whatever the line expects."""
        before = await self.subject.state()
        outcome = await self.subject.step(name, **given)
        after = await self.subject.state()
        self.remember(line, outcome, given)
        broken = [*invariants.of_state(after), *invariants.of_step(before, after)]
        epoch = carried_epoch(name, given)
        if epoch is not None:
            broken += invariants.old_work(before, after, given["live"], epoch)
        if isinstance(outcome, outcomes.Items):
            broken += self.trace.release(given["live"], given["worker"], given["epoch"], given["pull_no"])
        if broken:
            raise self.failure(line, [f"broken by {say(outcome, self.subject.now)}:", *broken], after)
        return outcome

    def remember(self, line: Line, outcome: Outcome | Home, given: Arguments) -> None:
        """What the caller knows from the answer."""
        match outcome:
            case outcomes.Registered(worker=worker):
                self.boots[worker] = given["boot"]
                self.ids[line.values["boot"]] = self.ids[given["name"]] = worker
            case outcomes.Reported(home=home, term=term, rev=rev):
                self.tables[given["worker"]] = (home, term, rev)
            case outcomes.Pulling(pull_no=pull_no, after=after):
                self.pulls[given["live"], given["worker"], given["epoch"]] = (pull_no, after)
            case outcomes.Items(first=first, items=blobs):
                key = (given["live"], given["worker"], given["epoch"])
                self.pulls[key] = (given["pull_no"], first + len(blobs) - 1)
            case outcomes.Appended(seq=seq, mark=mark) if mark:
                to = given["through"]
                self.pulls[given["live"], to.worker, to.epoch] = (to.pull_no, seq)

    # -- arguments

    def arguments(self, line: Line, state: State) -> Arguments:
        """The keyword arguments of the line's step: what it says, and what a well-behaved caller would add."""
        v = {name: self.resolve(name, value, line) for name, value in line.values.items()}
        for name in {"mark", "last"} & v.keys():
            v[name] = v[name].encode().ljust(MARK_BYTES, b".")
        if "generation" in v:
            worker, epoch = v.pop("generation")
            v |= {"worker": worker, "epoch": epoch}
            pull_no, last = self.pulls.get((v["live"], worker, epoch), (1, 0))
        match line.verb:
            case "worker" | "register":
                label = v.pop("boot")
                boot = f"boot-{label}".replace("'", "~")
                return {"name": label.rstrip("'"), "boot": boot, "pool": "gpu", "capacity": 1, **v}
            case "report":
                nothing = ("", 0, 0)
                home, term, rev = self.tables.get(v["worker"], nothing) if v.pop("known", False) else nothing
                busy = [slot_tag(*v.pop("busy"))] if "busy" in v else []
                boot = self.boots.get(v["worker"], "boot-unknown")
                return {"boot": boot, "home": home, "term": term, "rev": rev, "busy": busy, **v}
            case "enter":
                return {"server": self.server, "jump": v["number"], "first": v.get("first", False)}
            case verb if verb in SET_VERBS:
                return {**v, "verb": verb}
            case "expire":
                beat = state.workers[v["worker"]].beat if v["worker"] in state.workers else 0
                return {"beat": beat, **v}
            case "depart":
                live, number = v.pop("tag")
                return {**v, "live": live, "number": number, "reason": v.get("reason", b"").decode()}
            case "place":
                return self.place_arguments(v, line)
            case "reserve":
                return {"live": v["live"], "expected": v["from"], "candidates": v["on"]}
            case "pull":
                return {"after": last, "controller": "c", **v}
            case "append" | "interrupt":
                payload = v.pop("string")
                request = {} if "producer" in v else {"request": fresh_id(line)}
                through = self.through(v, *v.pop("through")) if "through" in v else {}
                return {"kind": "interrupt", "payload": payload, **request, **v, **through}
            case "release":
                return {"pull_no": v.pop("pull", pull_no), "after": last, "credit": 100, **v}
            case "ack":
                if "journal" in v:
                    v["journal"] = change_of(v["journal"].decode())
                return {"n": v.pop("number"), "saved": v.pop("state", None), **v}
            case "emit":
                data = v.pop("data", b"{}")
                return {"n": v.pop("number"), "name": v.pop("word"), "data": data, **v}
            case "new_term":
                return {"term": v["number"]}
        return v

    def through(self, v: Arguments, worker: str, epoch: int) -> Arguments:
        pull_no, last = self.pulls.get((v["live"], worker, epoch), (1, 0))
        named = (v.pop("pull", pull_no), v.pop("after", last), v.pop("last", UNMARKED))
        return {"through": Through(worker, epoch, *named), "credit": v.pop("credit", 100)}

    def place_arguments(self, v: Arguments, line: Line) -> Arguments:
        options = {name: v.pop(name) for name in CREATE_OPTIONS if name in v}
        v |= {"operation": v.pop("op", fresh_id(line)), "candidates": v.pop("on", []), "pools": v.pop("in", [])}
        if "from" in v:
            return {"cause": "reassign", "expected": v.pop("from"), **v}
        create = Create(**{"digital_id": "anna", "fingerprint": "f", **options})
        return {"cause": "create", "create": create, **v}

    def resolve(self, name: str, value: Any, line: Line) -> Any:
        """Short names in full: Workers by the latest boot, lives by their tenant."""
        match name, value:
            case ("worker" | "replaces", str()):
                return self.worker(value, line)
            case ("on", list()):
                return [self.candidate(each, line) for each in value]
            case ("generation" | "through", (worker, epoch)):
                return self.worker(worker, line), epoch
            case ("live", str()):
                return in_full(value)
            case ("tag" | "busy", (live, number)):
                return in_full(live), number
        return value

    def candidate(self, reference: str, line: Line) -> str | Equals:
        match candidate_of(reference):
            case Equals(pool, workers):
                return Equals(pool, tuple(self.worker(each, line) for each in workers))
        return self.worker(reference, line)

    def worker(self, reference: str, line: Line) -> str:
        if "#" in reference:
            return reference
        if reference not in self.ids:
            known = ", ".join(sorted(self.ids)) or "none"
            raise ScenarioError(f"{line.where}: no Worker {reference} has registered; known are {known}")
        return self.ids[reference]

    # -- outcomes and checks

    def compare(self, line: Line, said: Said, state: State) -> None:
        if not self.as_expected(line, said):
            expected = self.shorten(" ".join(map(self.canonical, line.expected)))
            raise self.failure(line, [f"expected {expected}", f"but got  {self.shorten(str(said))}"], state)

    def as_expected(self, line: Line, said: Said) -> bool:
        wanted = [self.canonical(token) for token in line.expected[1:]]
        words = tuple(token for token in wanted if not DETAIL.match(token))
        named = dict(token.split("=", 1) for token in wanted if DETAIL.match(token))
        same = line.expected[0] == said.word and words in (said.words, said.words + said.payload)
        return same and all(said.details.get(name) == value for name, value in named.items())

    def check(self, line: Line, state: State) -> None:
        """Tables and orders are compared whole; of a record, what the line names."""
        kind, *names = [self.canonical(word) for word in line.values["plain"]]
        named = {self.canonical(name): self.canonical(value) for name, value in line.values["named"].items()}
        found = CHECK[kind](state, names[0] if names else "", self.subject.now)
        said = names[CHECKS[kind][0] - 1 :]
        if said == ["none"]:
            wanted, compared = "none", found
        elif isinstance(found, list):
            wanted, compared = listed(said), found
        elif kind == "slots" or not found:
            wanted, compared = listed(named) if named else "something", found
        else:
            unknown = [name for name in named if name not in found]
            if unknown:
                raise ScenarioError(f"{line.where}: {unknown[0]!r} cannot be checked; allowed are {', '.join(found)}")
            wanted, compared = listed(named), {name: found[name] for name in named}
        order = sorted if kind in ("slots", "wakes") else list
        if order(listed(compared).split()) != order(wanted.split()):
            shown = [f"expected {self.shorten(wanted)}", f"but got  {self.shorten(listed(compared))}"]
            raise self.failure(line, shown, state)

    def canonical(self, text: str) -> str:
        """Short names of Workers as WorkerIDs, outside strings."""
        if '"' in text:
            return text
        return REFERENCE.sub(lambda match: self.ids.get(match[0], match[0]), text)

    def shorten(self, text: str) -> str:
        """WorkerIDs as a scenario writes them: the latest boot by its name alone."""
        for name, worker in self.ids.items():
            if "'" not in name:
                text = re.sub(rf"{re.escape(worker)}(?!\d)", name, text)
        return text

    def failure(self, line: Line, problem: list[str], state: State) -> ScenarioError:
        shown = [self.shorten(each) for each in [*problem, *describe(state, self.subject.now)]]
        return ScenarioError("\n  ".join([f"{line.where}: {line.text}", *shown]))


DETAIL = re.compile(r"\w+=")


def fresh_id(line: Line) -> str:
    """An operation or request id that no other line has."""
    return f"line-{line.where.rpartition(':')[2]}"


def carried_epoch(step: str, given: Arguments) -> int | None:
    """The epoch of the work that the step does, where it says one. A create is work on no generation at all."""
    match step:
        case "place" | "reserve":
            return int(given.get("expected", 0))
        case "pull" | "release_input" | "ack_input" | "emit":
            return int(given["epoch"])
        case "depart" | "hold" | "cancel":
            return int(given["number"])
    return None


def change_of(text: str) -> Change:
    """A change of the journal: the last entry that is dropped, the first number, and the entries."""
    drop, first, *entries = text.split()
    return Change(int(drop), int(first), tuple(entry.encode() for entry in entries))
