"""Every scenario in tests/scenarios, on every subject; and that the language says clearly what is wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import uvloop

from dhsched.ownership.outcomes import Outcome, Stale
from dhsched.ownership.state import State, frozen
from dhsched.ownership.steps import STEPS
from tests.conformance.real import on_store
from tests.conformance.rewrite import rewrite_all
from tests.conformance.scenario import run
from tests.conformance.subjects import SUBJECTS, Home, ModelSubject, SubjectFactory, model
from tests.harness.servers import SERVERS, running_server
from tests.scenarios.language import SCENARIOS, ScenarioError, answers, load, outcome_word, read

FILES = sorted(SCENARIOS.glob("*.txt"))


@pytest.fixture(scope="module", params=["model", "memory", *SERVERS])
def subject(request: pytest.FixtureRequest) -> Iterator[SubjectFactory]:
    """Everything that answers the steps; the servers are started once for all scenarios."""
    if request.param in SUBJECTS:
        yield SUBJECTS[request.param]
        return
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        server = running_server(request.param)
        address = runner.run(server.__aenter__()).address
        yield lambda limits: on_store(address, limits)
        runner.run(server.__aexit__(None, None, None))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
async def test_scenario(path: Path, subject: SubjectFactory) -> None:
    scenario = load(path)
    async with subject(scenario.limits) as running:
        await run(scenario, running)


def test_the_scenarios_show_every_outcome_of_every_step() -> None:
    """A step's answer that no scenario shows is one that nobody has thought through."""
    shown = {(line.step, line.expected[0]) for path in FILES for line in load(path).lines if line.expected}
    shown.add(("register_worker", "REGISTERED"))
    all_answers = {(step, outcome_word(kind)) for step in STEPS for kind in answers(step)}
    assert all_answers - shown == set()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("worker A", "x.txt:1: a scenario opens with a comment"),
        ("# x\nworker A\nplase L on A => COMMITTED A@1", "x.txt:3: 'plase' is no verb; allowed are limits, server,"),
        ("# x\nlook L", "x.txt:2: look needs an outcome, `=> WORD ...`; allowed are SWEPT, RECOVER, WAKE"),
        ("# x\nlook L => PULLING 1", "x.txt:2: look cannot answer PULLING; allowed are SWEPT, RECOVER, WAKE"),
        ("# x\npull L => STALE A@1", "x.txt:2: a generation: A@1 is missing; allowed is pull LIVE GENERATION"),
        ("# x\npull A A@1 => STALE A@1", "x.txt:2: 'A' is not a live: L to Z; allowed is pull LIVE GENERATION"),
        ("# x\nhold L next => HELD 1", "x.txt:2: 'next' is not a number; allowed is hold LIVE NUMBER"),
        ("# x\nreserve L on B => RESERVED B@2", "x.txt:2: from is missing; allowed is reserve LIVE from NUMBER"),
        (
            "# x\nreserve L from 1 on => FULL",
            "x.txt:2: on needs a Worker, or equals of a Pool: gpu=A=B; allowed is reserve",
        ),
        ("# x\nend L now => FINISHED ended", "x.txt:2: 'now' cannot stand here; allowed is end LIVE [after_pending]"),
        ("# x\nwait 5", "x.txt:2: '5' is not a time: 1500ms or 2s; allowed is wait DURATION"),
        ("# x\nwait 5s => IDLE", "x.txt:2: wait has no outcome; write it without =>"),
        ("# x\ncheck slots A", "x.txt:2: cannot read this check; allowed is check slots WORKER TAG=STATE"),
        ("# x\ncheck agenda L in=5", "x.txt:2: '5' is not a time: 1500ms or 2s; slots WORKER"),
        ("# x\ncheck cellar A", "x.txt:2: cannot read this check; allowed is check slots WORKER"),
        ("# x\nworker A\nlimits boots_max=1", "x.txt:3: limits stand once, before everything else"),
        ("# x\nlimits boots=1", "x.txt:2: 'boots' is no limit; allowed is NAME=NUMBER with the names claim_wait_ms,"),
        ("# x\nlimits boots_max=0", "x.txt:2: boots_max is 0; it must be a whole number from 1"),
        ("# x\nlimits boots_max=x", "x.txt:2: invalid literal for int()"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_line_and_what_is_allowed(text: str, complaint: str) -> None:
    with pytest.raises(ScenarioError) as error:
        read(text, "x.txt")
    assert complaint in str(error.value)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (
            "pull L A@1 => PULLING 2 after 0",
            ["x.txt:4: pull L A@1", "expected PULLING 2 after 0", "got  PULLING 1 after"],
        ),
        ('pull L A@1 => PULLING 1 after 0 config="x"', ['config="x"', 'config=""']),
        ("pull L A@2 => ENDED", ["expected ENDED", "but got  STALE A@1"]),
        ("pull L B@1 => STALE A@1", ["x.txt:4: no Worker B has registered; known are A"]),
        ("check slots A none", ["expected none", "but got  L@1=starting", "A: pool=gpu capacity=1", "L: epoch=1"]),
        ("check live L acked=1", ["expected acked=1", "but got  acked=0", "| agenda in=15000ms class=1"]),
        ("check live L aked=1", ["x.txt:4: 'aked' cannot be checked; allowed are epoch, issued,"]),
        ("check live M acked=1", ["expected acked=1", "but got  none"]),
        ("check live M", ["expected something", "but got  none"]),
        ("check live L none", ["expected none", "but got  epoch=1 issued=1"]),
        ("check agenda L in=2s", ["expected in=2000ms", "but got  in=15000ms"]),
        ("check free gpu A", ["expected A", "but got  none"]),
    ],
)
async def test_a_line_that_fails_says_what_came_and_how_things_stand(line: str, complaint: list[str]) -> None:
    scenario = read(f"# x\nworker A\nplace L on A => COMMITTED A@1\n{line}", "x.txt")
    async with model(scenario.limits) as subject:
        with pytest.raises(ScenarioError) as error:
            await run(scenario, subject)
    assert [part for part in complaint if part not in str(error.value)] == []


class Forgetful(ModelSubject):
    """A subject whose place never writes the agenda."""

    async def state(self) -> State:
        return replace(await super().state(), agenda=frozen({}))


class Resurrected(ModelSubject):
    """A subject in which an old epoch's ack gives the live back to whoever acks."""

    async def step(self, name: str, /, **arguments: Any) -> Outcome | Home:
        outcome = await super().step(name, **arguments)
        if isinstance(outcome, Stale):
            lives = {live: replace(record, active=None) for live, record in self._state.lives.items()}
            self._state = replace(self._state, lives=frozen(lives))
        return outcome


async def test_a_subject_that_breaks_an_invariant_is_caught_at_the_line_that_breaks_it() -> None:
    scenario = read("# x\nworker A\nplace L on A => COMMITTED A@1", "x.txt")
    with pytest.raises(ScenarioError, match=r"x.txt:3: .*\n  broken by COMMITTED A@1.*\n  I7: t/L is unclaimed"):
        await run(scenario, Forgetful(scenario.limits))
    text = """# x
worker A
worker B
place L on A => COMMITTED A@1
place L from 1 on B => COMMITTED B@2
pull L B@2 => PULLING 1 after 0
ack L A@1 0 => STALE B@2
"""
    with pytest.raises(ScenarioError, match=r"x.txt:7: (.*\n)*  I3: work of epoch 1 moved t/L"):
        await run(read(text, "x.txt"), Resurrected(scenario.limits))


WRONG = b"""# Every outcome that is wrong here is wrong in another way.\r
worker A   capacity=2
worker B
place   L on A   =>   COMMITTED B@1   # Not B.
place M on A => FULL refused=A:FULL:1/1
register A' replaces=A => REGISTERED A#1
report A => REPORTED unchanged
pull L A#1@1 =>  STALE A#1@1
pull L A#1@1 => STALE A#1@2
place L from 1 on A cause recover => COMMITTED A#3@2 load=7
pull L A@2 => PULLING 3 after 0
append L text "about A#3" => APPENDED 1
release L A@2 => NOTHING
release L A@2 after 0 => ITEMS 2..2 "two"
release L A@2 after 0 => ITEMS 2..2
check live L acked=7
ack L A@2 1 => STALE A@2   # The end has no newline."""
RIGHT = b"""# Every outcome that is wrong here is wrong in another way.\r
worker A   capacity=2
worker B
place   L on A   =>   COMMITTED A@1   # Not B.
place M on A => COMMITTED A@1 refused=
register A' replaces=A => REGISTERED A#3
report A => REPORTED
pull L A#1@1 =>  STALE A#1@1
pull L A#1@1 => STALE A#1@1
place L from 1 on A cause recover => COMMITTED A#3@2 load=1
pull L A@2 => PULLING 1 after 0
append L text "about A#3" => APPENDED 1
release L A@2 => ITEMS 1..1 "about A#3"
release L A@2 after 0 => ITEMS 1..1 "about A#3"
release L A@2 after 0 => ITEMS 1..1
check live L acked=7
ack L A@2 1 => ACKED 1   # The end has no newline."""


def test_rewriting_corrects_wrong_outcomes_and_touches_nothing_else(tmp_path: Path) -> None:
    wrong, right, unreadable = (tmp_path / f"{name}.txt" for name in ("wrong", "right", "unreadable"))
    wrong.write_bytes(WRONG)
    right.write_bytes(RIGHT)
    unreadable.write_bytes(b"# x\nplase L on A => COMMITTED A@1\n")
    written = right.stat().st_mtime_ns
    assert rewrite_all(tmp_path) == [wrong]
    assert wrong.read_bytes().splitlines() == RIGHT.splitlines()
    assert wrong.read_bytes() == right.read_bytes() == RIGHT
    assert right.stat().st_mtime_ns == written
    assert unreadable.read_bytes() == b"# x\nplase L on A => COMMITTED A@1\n"
    assert rewrite_all(tmp_path) == []
