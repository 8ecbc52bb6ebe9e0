"""Rules of the protocol broken on purpose, one at a time, and who notices.

A check that has never failed proves little. Each mutant here is caught by TLC (where the module knows its name:
constant `Mutant`), by the explorer (where `patch` breaks the product's own functions), or by both, and always by the
named invariant: a mutant that is caught by something else, or not at all, fails `make spec` or `make test`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from dhsched.ownership import agent as agency
from dhsched.ownership.draft import Draft
from dhsched.room import fence as room
from spec import failover
from spec.broken_rules import (
    ack_ahead,
    ack_unfenced,
    always_needed,
    append_repeats,
    clear_keeping_hold,
    clear_keeping_slot,
    commit_below_floor,
    commit_keeping_active,
    commit_of_another_home,
    depart_untagged,
    departs_all,
    enter_as_a_term,
    enter_with_old_pulls,
    enter_without_jump,
    fence_with_its_highest,
    fence_with_its_publishers,
    function,
    guard_without_epoch,
    guard_without_floor,
    home_without_info,
    interrupt_sparing_released,
    model_function,
    place_before_the_ack,
    place_from_anywhere,
    pull_after_released,
    pull_lowering_released,
    pull_vacant,
    release_any_pull,
    release_from_released,
    report_clearing_agenda,
    starts_finished,
    starts_too_many,
    step,
    survives_with_its_home,
    sweep_forgetting,
    take_any_table,
    with_the_stores_mark,
)

Patch = Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True, slots=True)
class Mutant:
    """One broken rule. `tlc` and `explorer` are a configuration and the invariant that it violates there."""

    name: str
    breaks: str
    tlc: tuple[str, str] | None = None
    explorer: tuple[str, str] | None = None
    patch: Patch | None = None


MUTANTS = (
    Mutant(
        "no-epoch-in-guard",
        "a release is checked against the selected Worker alone",
        tlc=("Fence", "I2"),
        explorer=("Fence", "I2"),
        patch=lambda: model_function("guard", guard_without_epoch),
    ),
    Mutant(
        "no-source-epoch-guard",
        "place does not compare the epoch that its caller saw",
        tlc=("Fence", "I3"),
        explorer=("Fence", "I3"),
        patch=lambda: model_function("check", place_from_anywhere),
    ),
    Mutant(
        "read-check-write-admission",
        "room is read in one step and taken in another",
        tlc=("TwoLives", "I4"),
    ),
    Mutant(
        "commit-keeps-active",
        "a commit leaves the old claim standing",
        tlc=("Fence", "I5"),
        explorer=("Fence", "I5"),
        patch=lambda: model_function("commit", commit_keeping_active),
    ),
    Mutant(
        "untagged-cleanup",
        "depart takes whatever slot the live has on the Worker, not the one it names",
        tlc=("Agents", "I3"),
        explorer=("Agents", "I3"),
        patch=lambda: step("depart", depart_untagged),
    ),
    Mutant(
        "ack-without-fence",
        "an ack is taken from any generation",
        tlc=("Input", "I6"),
        explorer=("Input", "I6"),
        patch=lambda: step("ack_input", ack_unfenced),
    ),
    Mutant(
        "no-pull-no",
        "two pulls of one generation both pass",
        tlc=("Fence", "I2"),
        explorer=("Fence", "I2"),
        patch=lambda: step("release_input", release_any_pull),
    ),
    Mutant(
        "ack-above-released",
        "an ack may name an item that was not released",
        tlc=("Input", "I6"),
        explorer=("Input", "I6"),
        patch=lambda: step("ack_input", ack_ahead),
    ),
    Mutant(
        "interrupt-spares-released",
        "an interrupt drops only what was not released yet",
        tlc=("Input", "I6"),
        explorer=("Input", "I6"),
        patch=lambda: model_function("interrupt", interrupt_sparing_released),
    ),
    Mutant(
        "epoch-restart-after-sweep",
        "an id that was swept starts at epoch 1 again",
        tlc=("Fence", "I0"),
        explorer=("Fence", "I0"),
        patch=lambda: model_function("look_ended", sweep_forgetting),
    ),
    Mutant(
        "release-from-released",
        "a release goes on where the last one ended, whether or not its reply arrived",
        tlc=("Input", "Order"),
        explorer=("Input", "Order"),
        patch=lambda: step("release_input", release_from_released),
    ),
    Mutant(
        "agent-restarts-departed",
        "an agent starts a generation again that it said depart for",
        tlc=("Agents", "Final"),
        explorer=("Agents", "Final"),
        patch=lambda: function(agency, "starts", starts_finished),
    ),
    Mutant(
        "revival-clears-agenda",
        "a Worker that reports again takes its lives off the agenda",
        tlc=("Losses", "I7"),
        explorer=("Losses", "I7"),
        patch=lambda: step("report", report_clearing_agenda),
    ),
    Mutant(
        "recover-without-needs",
        "place(recover) does not ask again whether it is needed",
        tlc=("Losses", "Need"),
        explorer=("Losses", "Need"),
        patch=lambda: model_function("needs", always_needed),
    ),
    Mutant(
        "hold-survives-move",
        "the hold is not cleared with its move",
        tlc=("InputMoves", "Moves"),
        explorer=("InputMoves", "Moves"),
        patch=lambda: function(Draft, "clear_move", clear_keeping_hold),
    ),
    Mutant(
        "move-before-the-ack",
        "a planned move waits for the boundary to be released, not for it to be acked",
        tlc=("InputMoves", "Repeat"),
        explorer=("InputMoves", "Repeat"),
        patch=lambda: model_function("check", place_before_the_ack),
    ),
    Mutant(
        "producer-repeat-accepted",
        "a producer's n <= last is stored once more",
        tlc=("Input", "Once"),
        explorer=("Input", "Once"),
        patch=lambda: step("append_input", append_repeats),
    ),
    Mutant(
        "no-floor-in-guard",
        "generations from before a new term still pass",
        tlc=("Terms", "Floor"),
        explorer=("Terms", "Floor"),
        patch=lambda: model_function("guard", guard_without_floor),
    ),
    Mutant(
        "reserved-below-floor",
        "a number reserved before a new term is committed after it",
        tlc=("Terms", "I0"),
        explorer=("Terms", "I0"),
        patch=lambda: model_function("commit", commit_below_floor),
    ),
    Mutant(
        "move-keeps-its-slot",
        "a move that is given up leaves its reserved slot behind",
        tlc=("Moves", "Moves"),
        explorer=("Moves", "Moves"),
        patch=lambda: function(Draft, "clear_move", clear_keeping_slot),
    ),
    Mutant(
        "pull-takes-vacant",
        "a late pull claims a generation whose runtime has departed",
        tlc=("Losses", "I5"),
        explorer=("Losses", "I5"),
        patch=lambda: step("pull", pull_vacant),
    ),
    Mutant(
        "pull-after-released",
        "a pull goes on after what was released, not after what its runtime has",
        tlc=("Input", "I6"),
        explorer=("Input", "I6"),
        patch=lambda: step("pull", pull_after_released),
    ),
    Mutant(
        "pull-lowers-released",
        "a pull takes back what was released and its sender has not named: a late one makes a move repeat an item",
        tlc=("InputGhosts", "Repeat"),
        explorer=("InputGhosts", "I6"),
        patch=lambda: step("pull", pull_lowering_released),
    ),
    Mutant(
        "ack-ignores-the-mark",
        "an ack counts for whatever item has its number now",
        tlc=("Marks", "Cursors"),
        explorer=("Marks", "Consumed"),
        patch=lambda: step("ack_input", with_the_stores_mark),
    ),
    Mutant(
        "release-ignores-the-mark",
        "a release goes on after whatever item has its number now",
        tlc=("MarksReleases", "Consumed"),
        explorer=("MarksReleases", "Consumed"),
        patch=lambda: step("release_input", with_the_stores_mark),
    ),
    Mutant(
        "pull-ignores-the-mark",
        "a pull goes on after whatever item has its number now",
        tlc=("Marks", "Granted"),
        explorer=("Marks", "Granted"),
        patch=lambda: step("pull", with_the_stores_mark),
    ),
    Mutant(
        "begin-is-named",
        "a runtime that has no item yet names the one that it begins after",
        tlc=("MarksInterrupts", "Consumed"),
    ),
    Mutant(
        "agent-over-capacity",
        "an agent does not count the runtimes that are still stopping",
        tlc=("Late", "I4"),
        explorer=("Late", "I4"),
        patch=lambda: function(agency, "starts", starts_too_many),
    ),
    Mutant(
        "agent-departs-all",
        "an agent gives a slot back that stands for a runtime whose own slot is gone",
        tlc=("Spare", "Slots"),
        explorer=("Spare", "Slots"),
        patch=lambda: function(agency, "reconcile", departs_all),
    ),
    Mutant(
        "older-table-taken",
        "an agent takes a slot table that is older than the one it has",
        tlc=("Late", "Final"),
        explorer=("Late", "Final"),
        patch=lambda: function(agency, "take_table", take_any_table),
    ),
    Mutant(
        "no-jump",
        "a home begins where the numbers of its history end",
        tlc=("Failover", "Twice"),
        explorer=("Failover", "Twice"),
        patch=lambda: step("enter", enter_without_jump),
    ),
    Mutant(
        "info-not-compared",
        "a step that issues numbers compares the home that it is told, and not the server that it runs on",
        tlc=("Failover", "Twice"),
        explorer=("Failover", "Twice"),
        patch=lambda: function(failover, "is_home", home_without_info),
    ),
    Mutant(
        "append-not-compared",
        "an append compares the home that it is told, and not the server that it runs on",
        tlc=("LongFailoverInput", "Reported"),
    ),
    Mutant(
        "position-not-compared",
        "a service asks whether the history has the home, and not how far the home came",
        tlc=("Restarts", "Reported"),
        explorer=("Restarts", "Reported"),
        patch=lambda: function(failover, "survives", survives_with_its_home),
    ),
    Mutant(
        "home-after-first-row",
        "a call runs its first row before it compares the home",
        tlc=("FailoverTwo", "NotRun"),
    ),
    Mutant(
        "settle-without-a-write",
        "WAIT follows the batch itself, and a repeated call writes nothing",
        tlc=("Settled", "Kept"),
    ),
    Mutant(
        "tell-before-settle",
        "an answer is passed on before the replicas have what it says",
        tlc=("Settled", "Kept"),
    ),
    Mutant(
        "wait-not-checked",
        "WAIT is believed on a server that was demoted and promoted since the batch",
        tlc=("LongSettledDemotes", "Kept"),
    ),
    Mutant(
        "base-does-not-jump",
        "a home goes on with the numbers of live and reservation",
        tlc=("HomesFence", "Twice"),
        explorer=("HomesFence", "Twice"),
        patch=lambda: step("enter", enter_without_jump),
    ),
    Mutant(
        "reserved-in-another-home",
        "a number reserved before a home is committed in it, as it was in the history that is lost",
        tlc=("HomesMoves", "Twice"),
        explorer=("HomesMoves", "Twice"),
        patch=lambda: model_function("commit", commit_of_another_home),
    ),
    Mutant(
        "pulls-do-not-jump",
        "a home goes on with the pulls of a generation",
        tlc=("HomesPulls", "Twice"),
        explorer=("HomesPulls", "Twice"),
        patch=lambda: step("enter", enter_with_old_pulls),
    ),
    Mutant(
        "unentered-home-issues",
        "connections that outlive a loss issue numbers before the home is entered",
        tlc=("HomesFence", "Twice"),
    ),
    Mutant(
        "enter-raises-the-floor",
        "to enter a home is a new term: every live restarts, touched by the loss or not",
        tlc=("HomesFence", "Quiet"),
        explorer=("HomesFence", "Quiet"),
        patch=lambda: step("enter", enter_as_a_term),
    ),
    Mutant(
        "agent-refuses-another-home",
        "an agent keeps the table of the home that it knows",
        tlc=("LiveHomes", "temporal"),
    ),
    Mutant(
        "fence-keeps-its-highest",
        "a room drops what is lower than it has heard, in whatever home",
        tlc=("HomesRoom", "Audible"),
        explorer=("HomesRoom", "Audible"),
        patch=lambda: function(room, "in_home", fence_with_its_highest),
    ),
    Mutant(
        "publishers-stay-admitted",
        "a room that hears of another home does not ask about its publishers anew",
        tlc=("HomesRoom", "Audible"),
        explorer=("HomesRoom", "Audible"),
        patch=lambda: function(room, "in_home", fence_with_its_publishers),
    ),
)
