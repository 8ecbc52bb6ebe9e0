"""The transition tables of docs/internals/protocol.md, cell by cell, in the language of tests/scenarios.

Each row below is a cell: how things stand, the step, and how they stand after it. What a table says by leaving it out
("not listed = unchanged") is a row as well.
"""

from __future__ import annotations

import pytest

from tests.conformance.scenario import run
from tests.conformance.subjects import model
from tests.scenarios.language import read

SETTINGS = "limits move_expires_ms=5000 claim_wait_ms=9000 ack_wait_ms=9000 term_step=1000 reap_ms=1000"


async def holds(*parts: str) -> None:
    """The scenario made of these parts does what it says."""
    scenario = read("\n".join(["# a cell of a table", SETTINGS, *parts]), "cell")
    async with model(scenario.limits) as subject:
        await run(scenario, subject)


# -- (a) Slots. The slot watched is L's on A; B and C are other Workers.

FLEET = "worker A capacity=3\nworker B capacity=3\nworker C capacity=3"
ON_B = f"{FLEET}\nplace L on B => COMMITTED B@1"
ON_A = f"{FLEET}\nplace L on A => COMMITTED A@1"
SLOT = {
    "none": ON_B,
    "reserved": f"{ON_B}\nreserve L from 1 on A => RESERVED A@2",
    "starting": ON_A,
    "running": f"{ON_A}\npull L A@1 => PULLING 1 after 0",
    "vacant": f"{ON_A}\npull L A@1 => PULLING 1 after 0\ndepart A L@1 => DEPARTED running",
    "departing": f"{ON_A}\nplace L from 1 on B => COMMITTED B@2",
}
NUMBER = {"none": 2, "reserved": 2, "starting": 1, "running": 1, "vacant": 1, "departing": 1}


def unchanged(state: str) -> str:
    return "none" if state == "none" else f"L@{NUMBER[state]}={state}"


SLOT_ROWS: dict[str, dict[str, tuple[str, str | None]]] = {
    "reserve": {
        "none": ("reserve L from 1 on A => RESERVED A@2", "L@2=reserved"),
        "reserved": ("reserve L from 1 on A => RESERVED A@2 again", "L@2=reserved"),
        "starting": ("reserve L from 1 on A => FULL refused=A:FULL:1/3", "L@1=starting"),
        "running": ("reserve L from 1 on A => FULL refused=A:FULL:1/3", "L@1=running"),
        "vacant": ("reserve L from 1 on A => FULL refused=A:FULL:1/3", "L@1=vacant"),
        "departing": ("reserve L from 2 on A => RESERVED A@3", "L@1=departing L@3=reserved"),
    },
    "place, winner": {
        "none": ("place L from 1 on A => COMMITTED A@2", "L@2=starting"),
        "reserved": ("place L from 1 on A => COMMITTED A@2", "L@2=starting"),
        "starting": ("place L from 1 on A => COMMITTED A@2", "L@2=starting"),
        "running": ("place L from 1 on A => COMMITTED A@2", "L@2=starting"),
        "vacant": ("place L from 1 on A => COMMITTED A@2", "L@2=starting"),
        "departing": ("place L from 2 on A => COMMITTED A@3", "L@1=departing L@3=starting"),
    },
    "place, source on another Worker": {
        "starting": ("place L from 1 on B => COMMITTED B@2", "L@1=departing"),
        "running": ("place L from 1 on B => COMMITTED B@2", "L@1=departing"),
        "vacant": ("place L from 1 on B => COMMITTED B@2", "none"),
        "departing": ("place L from 2 on C => COMMITTED C@3", "L@1=departing"),
    },
    "place to a third": {"reserved": ("place L from 1 on C => COMMITTED C@3", "L@2=departing")},
    "place in place": {"reserved": ("place L from 1 on B => COMMITTED B@3", "L@2=departing")},
    "cancel": {"reserved": ("cancel L 2 => CANCELLED", "L@2=departing")},
    "move expired": {"reserved": ("wait 9s\nlook L => WAKE", "L@2=departing")},
    "cordon": {
        "reserved": ("cordon A => WORKER_SET cordoned", "L@2=departing"),
        "starting": ("cordon A => WORKER_SET cordoned", "L@1=starting"),
        "running": ("cordon A => WORKER_SET cordoned", "L@1=running"),
        "vacant": ("cordon A => WORKER_SET cordoned", "L@1=vacant"),
        "departing": ("cordon A => WORKER_SET cordoned", "L@1=departing"),
    },
    "drain": {
        "reserved": ("drain A => WORKER_SET draining", "L@2=departing"),
        "starting": ("drain A => WORKER_SET draining", "L@1=starting"),
        "running": ("drain A => WORKER_SET draining", "L@1=running"),
        "vacant": ("drain A => WORKER_SET draining", "L@1=vacant"),
        "departing": ("drain A => WORKER_SET draining", "L@1=departing"),
    },
    "pull": {
        "none": ("pull L A@1 => STALE B@1", "none"),
        "reserved": ("pull L A@2 => STALE B@1", "L@2=reserved"),
        "starting": ("pull L A@1 => PULLING 1 after 0", "L@1=running"),
        "running": ("pull L A@1 => PULLING 2 after 0", "L@1=running"),
        "vacant": ("pull L A@1 => STALE A@1", "L@1=vacant"),
        "departing": ("pull L A@1 => STALE B@2", "L@1=departing"),
    },
    "depart": {
        "none": ("depart A L@2 => NOTHING", "none"),
        "reserved": ("depart A L@2 => DEPARTED reserved\ncheck live L move=none", "none"),
        "starting": ("depart A L@1 => DEPARTED starting", "L@1=vacant"),
        "running": ("depart A L@1 => DEPARTED running", "L@1=vacant"),
        "vacant": ("depart A L@1 => NOTHING", "L@1=vacant"),
        "departing": ("depart A L@1 => DEPARTED departing", "none"),
    },
    "depart of another number": {
        "reserved": ("depart A L@1 => NOTHING", "L@2=reserved"),
        "starting": ("depart A L@2 => NOTHING", "L@1=starting"),
        "running": ("depart A L@2 => NOTHING", "L@1=running"),
        "departing": ("depart A L@2 => NOTHING", "L@1=departing"),
    },
    "depart by another Worker": {
        "running": ("depart B L@1 => NOTHING", "L@1=running"),
        "departing": ("depart B L@1 => NOTHING", "L@1=departing"),
    },
    "end_live": {
        "none": ("end L => FINISHED ended", "none"),
        "reserved": ("end L => FINISHED ended", "L@2=departing"),
        "starting": ("end L => FINISHED ended", "L@1=departing"),
        "running": ("end L => FINISHED ended", "L@1=departing"),
        "vacant": ("end L => FINISHED ended", "none"),
        "departing": ("end L => FINISHED ended", "L@1=departing"),
    },
    "Worker lost": {
        "reserved": ("expire A => EXPIRED 0", "L@2=departing"),
        "starting": ("expire A => EXPIRED 1", "L@1=starting"),
        "running": ("expire A => EXPIRED 1", "L@1=running"),
        "vacant": ("expire A => EXPIRED 1", "L@1=vacant"),
        "departing": ("expire A => EXPIRED 0", "L@1=departing"),
    },
    "Worker revived": {
        "reserved": ("expire A => EXPIRED 0\nreport A => REPORTED", "L@2=departing"),
        "starting": ("expire A => EXPIRED 1\nreport A => REPORTED", "L@1=starting"),
        "running": ("expire A => EXPIRED 1\nreport A => REPORTED", "L@1=running"),
        "vacant": ("expire A => EXPIRED 1\nreport A => REPORTED", "L@1=vacant"),
        "departing": ("expire A => EXPIRED 0\nreport A => REPORTED", "L@1=departing"),
    },
    "Worker gone": {
        "none": ("exit A => WORKER_SET ready gone\ncheck worker A none", "none"),
        "reserved": ("exit A => WORKER_SET ready gone\ncheck live L move=none\ncheck worker A none", "none"),
        "starting": ("exit A => WORKER_SET ready gone\ncheck live L active=none pull_no=1", "L@1=vacant"),
        "running": ("exit A => WORKER_SET ready gone\ncheck live L active=none pull_no=2", "L@1=vacant"),
        "vacant": ("exit A => WORKER_SET ready gone", "L@1=vacant"),
        "departing": ("exit A => WORKER_SET ready gone\ncheck worker A none", "none"),
    },
    "departing on a gone Worker means removed": {
        "starting": ("exit A => WORKER_SET ready gone\nend L => FINISHED ended\ncheck worker A none", "none"),
        "running": ("exit A => WORKER_SET ready gone\nplace L from 1 on B => COMMITTED B@2", "none"),
    },
    "new_term": dict.fromkeys(SLOT, ("new_term 1 => NEW_TERM 2 floor 1000", None)),
    "append_input": dict.fromkeys(SLOT, ('append L text "x" => APPENDED 1', None)),
    "report": dict.fromkeys(SLOT, ("report A => REPORTED", None)),
    "reap of a Worker that is not lost": dict.fromkeys(SLOT, ("reap A => MOOT", None)),
}
SLOT_CELLS = [
    pytest.param(
        state, line, after or (f"L@{NUMBER[state]}={state}" if state != "none" else "none"), id=f"{step}-{state}"
    )
    for step, cells in SLOT_ROWS.items()
    for state, (line, after) in cells.items()
]


@pytest.mark.parametrize(("state", "line", "after"), SLOT_CELLS)
async def test_slot(state: str, line: str, after: str) -> None:
    await holds(SLOT[state], line, f"check slots A {after}")


async def test_a_slot_is_reserved_or_taken_only_where_the_table_has_room() -> None:
    full = "worker A\nworker B\nplace M on A => COMMITTED A@1\nplace L on B => COMMITTED B@1"
    await holds(full, "reserve L from 1 on A => FULL", "place L from 1 on A => FULL", "check slots A M@1=starting")


# -- (b) Lives: number, selected, active, pull_no, state and the rest

PLACED = "worker A capacity=3\nworker B capacity=3\nplace L on A => COMMITTED A@1"
CLAIMED = f"{PLACED}\npull L A@1 => PULLING 1 after 0"
CLOSING = f'{CLAIMED}\nappend L text "x" => APPENDED 1\nend L after_pending => FINISHED closing'
ENDED = f"{CLAIMED}\nend L => FINISHED ended"
MOVING = f"{CLAIMED}\nreserve L from 1 on B => RESERVED B@2"
BELOW = f"{CLAIMED}\nnew_term 1 => NEW_TERM 2 floor 1000"
LIVE_ROWS = [
    ("place create", "worker A", "place L on A => COMMITTED A@1", "epoch=1 issued=1 selected=A active=none pull_no=0"),
    ("place create, taken", CLAIMED, "place L on A => COMMITTED A@1 again", "epoch=1 active=A pull_no=1 state=open"),
    ("place create, other", CLAIMED, "place L on A fingerprint=g => CONFLICT", "epoch=1 active=A pull_no=1"),
    ("place create, ended", ENDED, "place L on A => ENDED", "epoch=1 state=ended"),
    ("place create, above the floor", "worker A\nnew_term 1 => NEW_TERM 2 floor 1000",
     "place L on A => COMMITTED A@1001", "epoch=1001 issued=1001"),
    ("place", CLAIMED, "place L from 1 on B => COMMITTED B@2",
     "epoch=2 issued=2 selected=B active=none pull_no=0 state=open starts=0 history=A@1,B@2"),
    ("place, unclaimed", PLACED, "place L from 1 on B => COMMITTED B@2", "epoch=2 starts=1"),
    ("place, reserved there", MOVING, "place L from 1 on B => COMMITTED B@2", "epoch=2 issued=2 selected=B move=none"),
    ("place, reserved elsewhere", MOVING, "place L from 1 on A => COMMITTED A@3", "epoch=3 issued=3 move=none"),
    ("place, below the floor", BELOW, "place L from 1 on B => COMMITTED B@1001", "epoch=1001 issued=1001 active=none"),
    ("place, closing", CLOSING, "place L from 1 on B => COMMITTED B@2", "epoch=2 state=closing"),
    ("place, ended", ENDED, "place L from 1 on B => ENDED", "epoch=1 selected=A"),
    ("place, other epoch", CLAIMED, "place L from 2 on B => STALE A@1", "epoch=1 selected=A active=A pull_no=1"),
    ("reserve", CLAIMED, "reserve L from 1 on B => RESERVED B@2",
     "epoch=1 issued=2 selected=A active=A pull_no=1 move=B@2"),
    ("reserve, closing", CLOSING, "reserve L from 1 on B => RESERVED B@2", "issued=2 state=closing move=B@2"),
    ("reserve, below the floor", BELOW, "reserve L from 1 on B => RESERVED B@1001", "epoch=1 issued=1001"),
    ("reserve, other epoch", CLAIMED, "reserve L from 2 on B => STALE A@1", "issued=1 move=none"),
    ("hold", MOVING, "hold L 2 => HELD 0", "epoch=1 issued=2 active=A pull_no=1 move=B@2 hold=0"),
    ("hold, other number", MOVING, "hold L 1 => NO_MOVE", "move=B@2 hold=none"),
    ("cancel", MOVING, "cancel L 2 => CANCELLED", "epoch=1 issued=2 selected=A active=A pull_no=1 move=none"),
    ("cancel, other number", MOVING, "cancel L 3 => NO_MOVE", "move=B@2"),
    ("pull", PLACED, "pull L A@1 controller=c9 => PULLING 1 after 0",
     "epoch=1 issued=1 selected=A active=A pull_no=1 controller=c9 starts=0"),
    ("pull again", CLAIMED, "pull L A@1 => PULLING 2 after 0", "active=A pull_no=2"),
    ("pull, below the floor", BELOW, "pull L A@1 => STALE A@1", "active=A pull_no=1"),
    ("pull, ended", ENDED, "pull L A@1 => ENDED", "active=none state=ended"),
    ("depart, starting", PLACED, "depart A L@1 => DEPARTED starting", "epoch=1 selected=A active=none pull_no=1"),
    ("depart, running", CLAIMED, "depart A L@1 => DEPARTED running", "epoch=1 selected=A active=none pull_no=2"),
    ("release, other pull", CLAIMED, "release L A@1 pull 2 => STALE A@1", "pull_no=1 released=0"),
    ("release, below the floor", BELOW, "release L A@1 => STALE A@1", "released=0"),
    ("ack, unclaimed", PLACED, "ack L A@1 0 => STALE A@1", "acked=0"),
    ("ack, below the floor", BELOW, "ack L A@1 0 => STALE A@1", "acked=0"),
    ("end after pending, nothing pending", CLAIMED, "end L after_pending => FINISHED ended", "state=ended active=none"),
    ("end after pending", f'{CLAIMED}\nappend L text "x" => APPENDED 1', "end L after_pending => FINISHED closing",
     "epoch=1 active=A pull_no=1 state=closing"),
    ("end", MOVING, "end L => FINISHED ended",
     "epoch=1 issued=2 selected=A active=none pull_no=1 state=ended move=none"),
    ("end, closing", CLOSING, "end L => FINISHED ended", "state=ended"),
    ("end, ended", ENDED, "end L => FINISHED ended", "state=ended"),
    ("expire of selected", CLAIMED, "expire A => EXPIRED 1", "epoch=1 selected=A active=A pull_no=1"),
    ("gone of selected", CLAIMED, "exit A => WORKER_SET ready gone", "epoch=1 selected=A active=none pull_no=2"),
    ("new_term", CLAIMED, "new_term 1 => NEW_TERM 2 floor 1000", "epoch=1 issued=1 selected=A active=A pull_no=1"),
]  # fmt: skip


@pytest.mark.parametrize(("before", "line", "after"), [pytest.param(*row[1:], id=row[0]) for row in LIVE_ROWS])
async def test_live(before: str, line: str, after: str) -> None:
    await holds(before, line, f"check live L {after}")


# -- (c) Workers: mode x lost, then gone

MODE = {
    "ready": "worker A\nreport A => REPORTED",
    "cordoned": "worker A\ncordon A => WORKER_SET cordoned\nreport A => REPORTED",
    "draining": "worker A\ndrain A => WORKER_SET draining\nreport A => REPORTED",
}
LOST = {"lost": "expire A => EXPIRED 0", "seen": ""}
GOES = {
    "cordon": {"ready": "cordoned", "cordoned": "cordoned", "draining": "draining"},
    "uncordon": {"ready": "ready", "cordoned": "ready", "draining": "draining"},
    "drain": {"ready": "draining", "cordoned": "draining", "draining": "draining"},
    "undrain": {"ready": "ready", "cordoned": "cordoned", "draining": "ready"},
}


@pytest.mark.parametrize("lost", LOST)
@pytest.mark.parametrize(("verb", "mode"), [(verb, mode) for verb in GOES for mode in MODE])
async def test_worker_mode(verb: str, mode: str, lost: str) -> None:
    """An operator's word changes the mode and nothing else; a placeable Worker is in `free`, no other."""
    then = GOES[verb][mode]
    free = "A" if (then, lost) == ("ready", "seen") else "none"
    flag = "yes" if lost == "lost" else "no"
    await holds(
        MODE[mode],
        LOST[lost],
        f"{verb} A => WORKER_SET {then}",
        f"check worker A mode={then} lost={flag} gone=no beat=2",
        f"check free gpu {free}",
    )


@pytest.mark.parametrize("lost", LOST)
@pytest.mark.parametrize("mode", MODE)
async def test_worker_report_revives_and_leaves_the_mode(mode: str, lost: str) -> None:
    free = "A" if mode == "ready" else "none"
    report = f"report A => REPORTED beat=3 mode={mode}"
    await holds(MODE[mode], LOST[lost], report, f"check worker A mode={mode} lost=no", f"check free gpu {free}")


@pytest.mark.parametrize("mode", MODE)
async def test_worker_expire(mode: str) -> None:
    await holds(
        MODE[mode],
        "expire A beat=1 => ALIVE 2",
        "expire A beat=3 => ALIVE 2",
        "check worker A lost=no",
        "expire A beat=2 => EXPIRED 0",
        "expire A beat=2 => NOTHING",
        f"check worker A mode={mode} lost=yes beat=2",
        "check free gpu none",
    )


@pytest.mark.parametrize("end", ["exit A => WORKER_SET {mode} gone", "register A' replaces=A#1 => REGISTERED A#2"])
@pytest.mark.parametrize("mode", MODE)
async def test_worker_gone_is_final(mode: str, end: str) -> None:
    """With a live on it the record stays until the live is placed; nothing brings it back."""
    await holds(
        "worker A capacity=2\nplace L on A => COMMITTED A@1",
        *MODE[mode].split("\n")[1:],
        end.format(mode=mode),
        "check worker A#1 gone=yes",
        "check slots A#1 L@1=vacant",
        "report A#1 => GONE",
        "expire A#1 => NOTHING",
        *(f"{verb} A#1 => NOT_FOUND" for verb in (*GOES, "exit", "reap")),
        "check free gpu none",
        "worker B",
        "place L from 1 on B cause recover => COMMITTED B@2",
        "check worker A#1 none",
    )


async def test_worker_reaped_only_when_lost_long_enough_with_nothing_owned() -> None:
    await holds(
        "worker A capacity=2\nworker B\nplace L on A => COMMITTED A@1",
        "reap A => MOOT",
        "expire A => EXPIRED 1",
        "reap A => MOOT",
        "wait 1s",
        "reap A => MOOT",
        "end L => FINISHED ended",
        "check slots A L@1=departing",
        "reap A => WORKER_SET ready gone",
        "check worker A none",
    )


async def test_worker_reap_waits_anew_after_a_revival() -> None:
    lost = "expire A => EXPIRED 0"
    await holds("worker A", lost, "wait 999ms", "report A => REPORTED", lost, "wait 999ms", "reap A => MOOT")


async def test_worker_cancel_drain_clears_moves_from_it_and_uncordon_does_not() -> None:
    moving = "worker A\nworker B\nplace L on A => COMMITTED A@1\nreserve L from 1 on B => RESERVED B@2"
    await holds(moving, "cordon A => WORKER_SET cordoned\nuncordon A => WORKER_SET ready", "check live L move=B@2")
    await holds(moving, "drain A => WORKER_SET draining\nundrain A => WORKER_SET ready", "check live L move=none")


# -- (d) Input cursors

THREE = "\n".join(f'append L text "{n}" => APPENDED {n}' for n in (1, 2, 3))
GIVEN = f"{CLAIMED}\n{THREE}\nrelease L A@1 credit 2 => ITEMS 1..2"
HELD = f"{GIVEN}\nack L A@1 2 => ACKED 2\nreserve L from 1 on B => RESERVED B@2"
CURSOR_ROWS = [
    ("append text", CLAIMED, 'append L text "x" => APPENDED 1', "appended=1 released=0 acked=0 dropped=0 pending=1"),
    ("append config", CLAIMED, 'append L config "c" => APPENDED 1', 'appended=1 released=0 acked=0 config=""'),
    ("ack config", f'{CLAIMED}\nappend L config "c" => APPENDED 1\nrelease L A@1 => ITEMS 1..1',
     "ack L A@1 1 => ACKED 1", 'appended=1 released=1 acked=1 config="c" fallback=""'),
    ("append interrupt", GIVEN, 'interrupt L "x" => APPENDED 4',
     "appended=4 released=3 acked=3 dropped=3 dropped_interrupt=3 pending=1"),
    ("append interrupt, idle", CLAIMED, 'interrupt L "x" => APPENDED 1', "appended=1 released=0 acked=0 dropped=0"),
    ("first pull", f"{PLACED}\n{THREE}", "pull L A@1 => PULLING 1 after 0", "appended=3 released=0 acked=0"),
    ("first pull, releases forgotten", f"{PLACED}\n{THREE}", "pull L A@1 after 2 => PULLING 1 after 2",
     "appended=3 released=2 acked=0"),
    ("pull, of another history", GIVEN, "pull L A@1 after 2 mark=x => STALE nobody", "released=2 forgot=yes pull_no=1"),
    ("ack, of another history", GIVEN, "ack L A@1 2 mark=x => STALE nobody", "released=2 acked=0 forgot=yes"),
    ("later pull, after within", GIVEN, "pull L A@1 after 1 => PULLING 2 after 1", "released=2 acked=0"),
    ("later pull, after beyond", GIVEN, "pull L A@1 after 3 => PULLING 2 after 3", "released=3 acked=0"),
    ("later pull, after below acked", f"{GIVEN}\nack L A@1 1 => ACKED 1", "pull L A@1 after 0 => PULLING 2 after 1",
     "released=2 acked=1"),
    ("later pull, at a boundary", f'{CLAIMED}\nappend L text "x" boundary => APPENDED 1\nrelease L A@1 => ITEMS 1..1',
     "pull L A@1 after 0 => PULLING 2 after 0", "released=1 at_boundary=yes"),
    ("release", GIVEN, "release L A@1 after 2 credit 9 => ITEMS 3..3", "appended=3 released=3 acked=0 dropped=0"),
    ("release, repeated", GIVEN, "release L A@1 after 0 credit 2 => ITEMS 1..2", "released=2"),
    ("release, after beyond", GIVEN, "release L A@1 after 9 credit 9 => STALE nobody", "released=2 forgot=yes"),
    ("release, no credit", GIVEN, "release L A@1 after 2 credit 2 => NOTHING", "released=2"),
    ("release, acked in between", f"{GIVEN}\nack L A@1 2 => ACKED 2", "release L A@1 after 0 => ITEMS 3..3",
     "released=3"),
    ("release, held", f"{HELD}\nhold L 2 => HELD next", "release L A@1 => ITEMS 3..3", "released=3 hold=next"),
    ("release, held at a number", f'{CLAIMED}\nreserve L from 1 on B => RESERVED B@2\nhold L 2 => HELD 0\n{THREE}',
     "release L A@1 => NOTHING", "released=0 hold=0"),
    ("release, at the last item of a closing live", f"{GIVEN}\nend L after_pending => FINISHED closing",
     "release L A@1 => ITEMS 3..3", "at_boundary=yes"),
    ("ack", GIVEN, 'ack L A@1 1 state "s" => ACKED 1', 'appended=3 released=2 acked=1 pending=2 saved="s"'),
    ("ack, behind", f"{GIVEN}\nack L A@1 2 => ACKED 2", "ack L A@1 1 => ACKED 2", "acked=2 pending=1"),
    ("ack, late state", f'{GIVEN}\nack L A@1 2 state "2" => ACKED 2', 'ack L A@1 1 state "1" => ACKED 2', 'saved="2"'),
    ("ack, ahead", GIVEN, "ack L A@1 3 => AHEAD 2", "acked=0"),
    ("place recover, released", f"{GIVEN}\nexpire A => EXPIRED 1",
     "place L from 1 on B cause recover => COMMITTED B@2", "released=0 acked=0 dropped=0 suspect=1:1"),
    ("place recover, all acked", f"{GIVEN}\nack L A@1 2 => ACKED 2\nexpire A => EXPIRED 1",
     "place L from 1 on B cause recover => COMMITTED B@2", "released=2 acked=2 suspect=none"),
    ("place, any other", GIVEN, "place L from 1 on B => COMMITTED B@2", "released=0 acked=0 dropped=0 suspect=none"),
    ("end", GIVEN, "end L => FINISHED ended", "appended=3 released=3 acked=3 dropped=3 dropped_end=3 pending=0"),
    ("end, all acked", f"{GIVEN}\nack L A@1 2 => ACKED 2", "end L => FINISHED ended", "acked=3 dropped_end=1"),
    ("hold, nothing pending", MOVING, "hold L 2 => HELD 0", "hold=0"),
    ("hold, mid-sentence", HELD, "hold L 2 => HELD next", "hold=next"),
    ("hold, at a boundary", f'{CLAIMED}\nappend L text "x" boundary => APPENDED 1\nappend L text "y" => APPENDED 2\n'
     "release L A@1 credit 1 => ITEMS 1..1\nreserve L from 1 on B => RESERVED B@2", "hold L 2 => HELD 1", "hold=1"),
    ("hold, said before the end of what was pending", f"{HELD}\nhold L 2 => HELD next\nrelease L A@1 => ITEMS 3..3\n"
     "ack L A@1 3 => ACKED 3", "hold L 2 => HELD 3", "hold=3"),
]  # fmt: skip


@pytest.mark.parametrize(("before", "line", "after"), [pytest.param(*row[1:], id=row[0]) for row in CURSOR_ROWS])
async def test_cursors(before: str, line: str, after: str) -> None:
    await holds(before, line, f"check live L {after}")
