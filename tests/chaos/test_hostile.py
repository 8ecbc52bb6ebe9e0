"""What the hostile side of a storm sends, and that its judge sees what it is there to see."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest

from dhsched.links import messages
from dhsched.ownership import outcomes as o
from dhsched.ownership.limits import DEFAULT_LIMITS
from dhsched.ownership.state import EMPTY, State
from dhsched.ownership.steps import STEPS
from dhsched.ownership.steps.place import Create
from dhsched.room.packets import Begin, Packet
from dhsched.types import Generation
from tests.chaos.deployment import Size
from tests.chaos.hostile_judge import HostileJudge, compare, of_others
from tests.chaos.hostile_links import WORKER_MESSAGES, worker_rows
from tests.chaos.hostile_mutants import UNCHECKED
from tests.chaos.hostile_values import SINGLE, Coverage, Known, Row, fields_of, rows_of, wrong
from tests.chaos.storm import run
from tests.chaos.trace import Taken


def test_every_message_of_a_worker_and_every_field_has_a_row() -> None:
    """The rows are those of the product's definitions: a field that is added is a row that is added."""
    sent = {*get_args(messages.FromWorker), *get_args(messages.PullSays)}
    assert {*WORKER_MESSAGES.values()} == sent
    fields = {(kind, field.partition(".")[0]) for kind in sent for field in fields_of(kind)}
    assert {(kind, field) for kind in sent for field in kind.__struct_fields__ or ("-",)} == fields
    fields = {(kind, field) for kind in sent for field in fields_of(kind) if field != "-"}
    rows = {(WORKER_MESSAGES[row.message], row.field) for row in worker_rows()}
    assert fields == {row for row in rows if row[1] != "-"}
    assert {kind for kind in sent if not kind.__struct_fields__} == {kind for kind, field in rows if field == "-"}


def test_a_field_that_is_added_is_a_row_that_is_added() -> None:
    class Longer(messages.Report, tag="report"):
        added: messages.Number = 0

    assert {*rows_of("report", Longer)} - {*rows_of("report", messages.Report)} == {Row("report", "added")}


@pytest.mark.parametrize("kind", SINGLE)
def test_every_kind_of_wrong_value_fits_every_field(kind: str) -> None:
    """A value of each kind is there for each field, and is not the field's own."""
    for message in WORKER_MESSAGES.values():
        for type_ in fields_of(message).values():
            own = {"IntType": 5, "FloatType": 5.0, "BytesType": b"own", "ListType": ["own"]}.get(type(type_).__name__)
            made = wrong(kind, type_, Known(own or "own"))
            assert made is not None and made != (own or "own")


def test_an_empty_cell_is_found() -> None:
    coverage = Coverage([Row("a", "x"), Row("a", "y")])
    for kind in SINGLE:
        coverage.count(Row("a", "x"), kind, "refused")
    coverage.count(Row("a", "y"), "old", "ignored")
    coverage.repeated("a", "answered", 10)
    assert coverage.lacking(10) == [f"a.y: {kind} was sent 0 times, not 1" for kind in SINGLE if kind != "old"]
    assert len(coverage.lacking(11)) == 2 + 6
    assert next(coverage.lines()).split()[0] == "message.field"


def test_every_field_of_what_a_viewer_and_a_publisher_send_has_a_row() -> None:
    pytest.importorskip("aiortc")
    from dhsched.room import viewing, whep
    from tests.chaos.hostile_requests import calls

    found = calls()
    say = next(each for each in viewing.endpoints(None) if each.name == "say")  # type: ignore[arg-type]
    assert say.body is not None
    assert found["room say"].fields.keys() == {"live_id", *say.body.__struct_fields__}
    assert len([each for each in found.values() if each.path.startswith(whep.PATH)]) == len(whep.routes(None))  # type: ignore[arg-type]
    assert {"dispatch say_blocked", "dispatch mint_token", "dispatch join"} < found.keys()
    assert {*fields_of(Begin)} == {"live", "epoch", "video.codec", "video.clock", "audio.codec", "audio.clock"}
    assert Packet._fields == ("kind", "keyframe", "pts_us", "payload"), "hostile_publishing.py packs these"


def test_a_picture_says_whose_it_is() -> None:
    av: Any = pytest.importorskip("av")
    from tests.chaos.picture import GREEN, RED, decoded, encoded

    for colour, number in ((GREEN, 0), (GREEN, 1), (GREEN, 0xABCD), (RED, 0xEEEE), (GREEN, 0xFFFF)):
        codec = av.CodecContext.create("vp8", "r")
        frame = [*codec.decode(av.Packet(encoded(colour, number))), *codec.decode(None)][0]
        assert decoded(frame.to_ndarray(format="rgb24")) == (colour == RED, number)


# -- the judge

EVIL_BOOT, HONEST = "evil-1#1", "worker-1#2"


def scene() -> State:
    """A hostile Worker with the live E, an honest one with the live V, both running."""
    state = EMPTY
    for name, pool in (("evil-1", "evil"), ("worker-1", "gpu")):
        given = {"name": name, "boot": f"boot-{name}", "pool": pool, "capacity": 4, "labels": "", "replaces": ""}
        state, _ = STEPS["register_worker"](state, 1, DEFAULT_LIMITS, **given)
    for worker, name, live in ((EVIL_BOOT, "evil-1", "E"), (HONEST, "worker-1", "V")):
        state, _ = STEPS["report"](state, 2, DEFAULT_LIMITS, worker=worker, boot=f"boot-{name}")
        state = placed(state, live, worker)
        pull = {"live": f"default/{live}", "worker": worker, "epoch": 1, "after": 0, "controller": "i"}
        state, answer = STEPS["pull"](state, 4, DEFAULT_LIMITS, **pull)
        assert isinstance(answer, o.Pulling)
    return state


def placed(state: State, live: str, worker: str) -> State:
    create = Create(digital_id="d", room="", priority=1, immovable=False, fingerprint="f", metadata=b"", config=b"")
    given: dict[str, Any] = {"live": f"default/{live}", "expected": 0, "cause": "create", "candidates": [worker]}
    given["operation"] = "op"
    found, answer = STEPS["place"](state, 3, DEFAULT_LIMITS, **given, create=create)
    assert isinstance(answer, o.Committed), answer
    return found


def judged(step: str, **given: Any) -> Iterator[str]:
    before = scene()
    after, answer = STEPS[step](before, 9, DEFAULT_LIMITS, **given)
    return HostileJudge("default/viewed").take(Taken(1, 9, step, given, answer), before, after)


def test_what_a_hostile_worker_does_to_its_own_is_its_own_affair() -> None:
    assert [*judged("depart", worker=EVIL_BOOT, live="default/E", number=1, reason="EVIL")] == []
    assert [*judged("depart", worker=EVIL_BOOT, live="default/V", number=1, reason="EVIL")] == []
    assert [*judged("pull", worker=EVIL_BOOT, live="default/E", epoch=1, after=0, controller="i")] == []


def test_what_a_hostile_worker_does_as_another_is_seen() -> None:
    departed = [*judged("depart", worker=HONEST, live="default/V", number=1, reason="EVIL")]
    pulled = [*judged("pull", worker=HONEST, live="default/V", epoch=1, after=0, controller="i", mark=b"EVIL!!!!")]
    for [complaint] in (departed, pulled):
        assert "taken as another's" in complaint


def test_a_step_of_a_hostile_worker_that_changes_what_is_anothers_is_seen() -> None:
    before = scene()
    record = replace(before.lives["default/V"], acked=7)
    after = replace(
        before,
        lives={**before.lives, "default/V": record},
        slots={**before.slots, HONEST: {}},
        workers={**before.workers, HONEST: replace(before.workers[HONEST], gone=True)},
    )
    given = {"worker": EVIL_BOOT, "live": "default/E", "epoch": 1, "n": 1}
    found = [*HostileJudge().take(Taken(1, 9, "ack_input", given, None), before, after)]
    assert [each.partition(" changed ")[2] for each in found] == [
        f"default/V, which is on {HONEST}",
        f"the slots of {HONEST}",
        f"the workers of {HONEST}",
    ]


def test_a_live_that_waits_may_be_woken_by_a_hostile_worker_and_no_more() -> None:
    scened = scene()
    waiting = replace(scened.lives["default/V"], waits=("other",), tries=3)
    before = replace(scened, lives={**scened.lives, "default/V": waiting})
    given = {"worker": EVIL_BOOT, "live": "default/E", "epoch": 1, "n": 1}
    for record, complaints in ((replace(waiting, tries=0), 0), (replace(waiting, tries=0, acked=1), 1)):
        after = replace(before, lives={**before.lives, "default/V": record})
        assert len([*HostileJudge().take(Taken(1, 9, "ack_input", given, None), before, after)]) == complaints


def test_a_slot_that_was_reserved_for_a_live_of_the_hostile_worker_may_be_given_back() -> None:
    before = replace(scene(), slots={**scene().slots, HONEST: {**scene().slots[HONEST], "default/E@2": "reserved"}})
    given = {"worker": EVIL_BOOT, "live": "default/E", "epoch": 1, "n": 1}
    record = before.workers[HONEST]
    for now, complaints in ((replace(record, load=record.load - 1), 0), (replace(record, lost=True), 1)):
        after = replace(before, slots=scene().slots, workers={**before.workers, HONEST: now})
        assert len([*HostileJudge().take(Taken(1, 9, "ack_input", given, None), before, after)]) == complaints


def test_a_hostile_worker_may_give_back_what_was_reserved_on_it_and_the_source_has_a_move_less() -> None:
    before = placed(scene(), "E2", HONEST)
    before, reserved = STEPS["reserve"](
        before, 5, DEFAULT_LIMITS, live="default/E2", expected=1, candidates=[EVIL_BOOT]
    )
    assert isinstance(reserved, o.Reserved), reserved
    given = {"worker": EVIL_BOOT, "live": "default/E2", "number": reserved.number, "reason": "EVIL"}
    after, _ = STEPS["depart"](before, 9, DEFAULT_LIMITS, **given)
    assert after.workers[HONEST].cutovers == before.workers[HONEST].cutovers - 1
    for now, complaints in ((after.workers[HONEST], 0), (replace(after.workers[HONEST], load=0), 1)):
        seen = replace(after, workers={**after.workers, HONEST: now})
        taken = Taken(1, 9, "depart", given, o.Departed("reserved"))
        assert len([*HostileJudge().take(taken, before, seen)]) == complaints


def test_a_live_that_is_not_lent_is_never_on_the_hostile_worker() -> None:
    before = scene()
    moved = replace(before.lives["default/V"], selected=EVIL_BOOT)
    after = replace(before, lives={**before.lives, "default/V": moved})
    taken = Taken(1, 9, "place", {"live": "default/V"}, o.Committed(Generation(EVIL_BOOT, 2), rev=1, load=1))
    [complaint] = HostileJudge().take(taken, before, after)
    assert "must never be" in complaint


def test_text_of_the_hostile_viewer_is_in_its_own_live_only() -> None:
    given = {"kind": "text", "payload": b"EVIL says", "producer": "p", "n": 1}
    state = scene()
    for live, complaints in (("default/viewed", 0), ("default/V", 1), ("default/E", 1)):
        taken = Taken(1, 9, "append_input", {"live": live, **given}, None)
        assert len([*HostileJudge("default/viewed").take(taken, state, state)]) == complaints


def test_what_changed_while_the_hostile_side_was_alone_is_seen() -> None:
    before = scene()
    for live, complaints in (("default/V", 1), ("default/E", 0)):
        record = replace(before.lives[live], epoch=2, pull_no=9)
        after = replace(before, lives={**before.lives, live: record})
        was, now = of_others(before, "default/viewed"), of_others(after, "default/viewed")
        assert len([*compare(was, now, set())]) == complaints
        assert [*compare(was, now, {HONEST})] == [], "a Worker that was lost explains it"


# -- mutants, and the whole


@pytest.mark.parametrize("name", UNCHECKED)
def test_every_mutant_of_a_service_still_fits(name: str) -> None:
    mutant = UNCHECKED[name]
    spec = importlib.util.find_spec(mutant.module)
    assert spec is not None and spec.origin is not None
    assert Path(spec.origin).read_text().count(mutant.old) == 1


SMALL = Size(workers=4, lives=12)


@pytest.mark.release
@pytest.mark.skipif(sys.platform != "linux", reason="NOT TESTED: the faults are Linux's (prlimit, PR_SET_PDEATHSIG)")
async def test_a_hostile_worker_and_a_hostile_viewer_change_nothing_of_others_in_a_storm() -> None:
    pytest.importorskip("aiortc")
    report = await run(seed=1, storm_s=6.0, size=SMALL, faults="lossless", hostile=40)
    assert report.violations == []
    assert report.frames > 10 and report.hostile_steps > 100
    assert len(report.coverage) > 100, "the table"


@pytest.mark.release
@pytest.mark.skipif(sys.platform != "linux", reason="NOT TESTED: the faults are Linux's (prlimit, PR_SET_PDEATHSIG)")
@pytest.mark.parametrize(
    "mutant, seen_by",
    [
        ("resume-of-another", "taken as another's"),
        ("hello-of-another", "taken as another's|was sent Pulling"),
        ("viewer-of-another", "taken as another's|was granted"),
        ("unsigned", "was accepted"),
    ],
)
async def test_a_storm_in_which_a_service_believes_a_hostile_side_turns_red(mutant: str, seen_by: str) -> None:
    pytest.importorskip("aiortc")
    report = await run(seed=1, storm_s=120.0, size=SMALL, faults="clock", hostile=40, mutant=mutant, until_red=True)
    assert report.red_after_s is not None and any("hostile: " in each for each in report.violations)
    assert any(re.search(seen_by, each) for each in report.violations), report.violations[:3]
