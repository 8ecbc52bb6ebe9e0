"""What a watcher is told, from two looks at a record."""

from __future__ import annotations

from dhsched.infer.events import Observed, changes
from dhsched.ownership.state import Row
from dhsched.store.records.lives import ViewerItem


def names(before: Observed, now: Observed) -> list[str]:
    return [event for event, _ in changes(before, now)]


def test_a_late_watcher_is_told_where_the_live_stands() -> None:
    now = Observed(epoch=2, worker="w#1", cause="create", claimed=True, released=5, acked=3)
    assert names(Observed(), now) == ["committed", "claimed", "released", "acked"]


def test_nothing_changed_says_nothing() -> None:
    look = Observed(epoch=2, worker="w#1", claimed=True, released=5, acked=3, dropped_interrupt=1)
    assert names(look, look) == []


def test_generations_in_between_are_told() -> None:
    before = Observed(epoch=1, worker="a#1", claimed=True)
    row = Row(2, "b#1", "reassign", "op", committed_at=5, claimed_at=6)
    now = Observed(epoch=3, worker="a#1", cause="recover", stalled=False, past=(row,))
    found = list(changes(before, now))
    assert [(event, data["epoch"]) for event, data in found] == [("committed", 2), ("claimed", 2), ("committed", 3)]
    assert found[2][1]["cause"] == "recover"


def test_dropped_has_its_cause_and_its_count() -> None:
    before = Observed(epoch=1, claimed=True, acked=1, released=1)
    now = Observed(epoch=1, claimed=True, acked=6, released=6, dropped_interrupt=4, dropped_poison=1)
    found = [data for event, data in changes(before, now) if event == "dropped"]
    assert [(data["cause"], data["items"]) for data in found] == [("interrupt", 4), ("poison", 1)]


def test_who_said_an_item_is_told_before_it_is_released() -> None:
    before = Observed(epoch=1, claimed=True, released=1)
    now = Observed(epoch=1, claimed=True, released=2, said=(ViewerItem("Zoë", "text", 2),))
    assert names(before, now) == ["said", "released"]
    assert next(changes(before, now))[1] == {"identity": "Zoë", "kind": "text", "seq": 2}


def test_stalled_and_ended() -> None:
    before = Observed(epoch=1, claimed=True)
    assert names(before, Observed(epoch=1, claimed=True, stalled=True)) == ["stalled"]
    ended = Observed(epoch=1, state="ended", acked=4, released=4, dropped_end=4)
    assert names(before, ended) == ["dropped", "ended"]
