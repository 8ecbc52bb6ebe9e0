"""What a drain does next, as a list that a test can compare (dispatch/moves/plan.py)."""

from __future__ import annotations

from typing import Any

from dhsched.dispatch.moves.plan import (
    CARRY_ON_S,
    EXPIRY_MARGIN_MS,
    Blocked,
    CutOver,
    DrainNotes,
    Force,
    Plan,
    Reserve,
    Rules,
    plan,
)
from dhsched.store.records.drains import DrainRequest
from dhsched.store.records.lives import LiveOnWorker

RULES = Rules(cutovers_max=2, move_expires_ms=120_000)
PATIENT = DrainRequest(asked_at_ms=1_000, lives=5, boundary_wait_s=60)
RESERVED_AT_MS = 10_000


def live(name: str, **fields: Any) -> LiveOnWorker:
    given: dict[str, Any] = {"epoch": 1, "slot": "running", "digital_id": "anna", "immovable": False, "priority": 1}
    return LiveOnWorker(live=f"t/{name}", **{**given, "pending": 0, **fields})


def moving(name: str, *, hold: str = "", **fields: Any) -> LiveOnWorker:
    expires = RESERVED_AT_MS + RULES.move_expires_ms
    return live(name, target="b#2", number=2, expires_at_ms=expires, hold=hold, **fields)


def planned(
    *rows: LiveOnWorker, request: DrainRequest = PATIENT, now_ms: int = 20_000, held_s: float = 0.0, **blocked: str
) -> Plan:
    notes = DrainNotes(blocked={f"t/{name}": Blocked("NO_FREE_SLOT", why) for name, why in blocked.items()})
    for row in rows:
        notes.held_since[row.live, row.number] = 100.0 - held_s
    return plan(rows, request, RULES, now_ms=now_ms, notes=notes, now_s=100.0)


def codes(made: Plan) -> dict[str, str]:
    return {standing.row.live.removeprefix("t/"): standing.code for standing in made.standings}


def test_places_are_reserved_for_as_many_as_may_be_cut_over_the_most_urgent_and_quietest_first() -> None:
    busy, quiet, urgent = live("busy", pending=9), live("quiet"), live("urgent", priority=0, pending=9)
    made = planned(busy, quiet, urgent)
    assert made.actions == (Reserve(urgent), Reserve(quiet))
    assert made.queue == (busy,), "whoever follows the end of a cutover is reserved for once"


def test_lives_that_nobody_can_take_do_not_stand_before_those_that_can_move() -> None:
    made = planned(*(live(name, priority=0) for name in "abc"), live("z"), a="full", b="full", c="full")
    assert [each.row.live for each in made.actions if isinstance(each, Reserve)] == ["t/z", "t/a"]


def test_no_more_are_reserved_while_cutovers_are_used_up() -> None:
    made = planned(moving("x"), moving("y", hold="next"), live("z"))
    assert made.actions == ()
    assert codes(made) == {"x": "PREPARING", "y": "BOUNDARY", "z": "CUTOVERS"}


def test_who_held_a_move_sees_it_through_and_only_later_do_others() -> None:
    held = moving("x", hold="7")
    assert planned(held, held_s=CARRY_ON_S / 2).actions == ()
    assert planned(held, held_s=CARRY_ON_S).actions == (CutOver(held),)


def test_what_finds_no_boundary_is_forced_after_the_wait_and_not_before() -> None:
    held = moving("x", hold="next")
    assert planned(held, held_s=59.9).actions == (CutOver(held),)
    assert planned(held, held_s=60).actions == (Force(held),)
    impatient = DrainRequest(asked_at_ms=0, lives=1, boundary_wait_s=0)
    assert planned(held, request=impatient).actions == (Force(held),)


def test_a_move_is_used_before_it_expires_even_if_its_target_never_spoke() -> None:
    silent = moving("x")
    last_ms = silent.expires_at_ms - EXPIRY_MARGIN_MS
    assert planned(silent, now_ms=last_ms - 1).actions == ()
    assert planned(silent, now_ms=last_ms).actions == (Force(silent),)


def test_the_immovable_stay_until_the_deadline_and_then_everything_goes() -> None:
    rows = (live("stays", immovable=True), moving("x"), live("y"))
    made = planned(*rows)
    assert made.actions == (Reserve(rows[2]),)
    assert codes(made)["stays"] == "IMMOVABLE"
    due = DrainRequest(asked_at_ms=0, lives=3, boundary_wait_s=60, deadline_at_ms=20_000)
    assert planned(*rows, request=due, now_ms=19_999).actions == (Reserve(rows[2]),)
    assert planned(*rows, request=due).actions == tuple(Force(row) for row in rows)


def test_a_live_that_found_no_place_is_blocked_says_why_and_is_tried_again() -> None:
    made = planned(live("x"), x="all are full")
    assert made.actions == (Reserve(live("x")),)
    assert [(each.state, each.code, each.reason) for each in made.standings] == [
        ("blocked", "NO_FREE_SLOT", "all are full")
    ]


def test_notes_are_kept_only_of_what_is_still_there() -> None:
    notes = DrainNotes(blocked={"t/x": Blocked("NO_FREE_SLOT", ""), "t/gone": Blocked("NO_FREE_SLOT", "")})
    held = moving("x", hold="7")
    notes.read([held, live("y")], now_s=5.0)
    notes.read([held], now_s=9.0)
    assert notes.held_since == {("t/x", 2): 5.0}
    notes.keep([moving("x")._replace(number=3)])
    assert notes.held_since == {} and [*notes.blocked] == ["t/x"]
