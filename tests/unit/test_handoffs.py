"""The phases of generations: what is measured, and how seldom the store is asked for it."""

from __future__ import annotations

from typing import Any, cast

from prometheus_client import CollectorRegistry

from dhsched.dispatch.telemetry.handoffs import FOLLOWED_MAX, ROUNDS_MAX, Begun, Handoffs
from dhsched.store.records import Records
from dhsched.store.records.lives import Times


class Lives:
    """The times of lives, and every reading of them."""

    def __init__(self) -> None:
        self.known: dict[str, Times] = {}
        self.reads: list[str] = []
        self.lives = self

    async def times(self, lives: list[str]) -> list[Times | None]:
        self.reads += lives
        return [self.known.get(live) for live in lives]


class Measured:
    """Handoffs over such lives, and what they have counted."""

    def __init__(self) -> None:
        self.lives = Lives()
        self.registry = CollectorRegistry()
        self.handoffs = Handoffs(cast(Records, self.lives), self.registry)

    async def rounds(self, count: int) -> None:
        for _ in range(count):
            await self.handoffs.round()

    def seconds(self, phase: str) -> tuple[Any, Any]:
        def value(name: str) -> Any:
            labels = {"cause": "create", "phase": phase}
            return self.registry.get_sample_value(f"dhsched_handoff_seconds_{name}", labels)

        return value("count"), value("sum")


async def test_a_live_that_is_claimed_and_idle_is_read_a_few_times_in_all() -> None:
    made = Measured()
    for n in range(FOLLOWED_MAX):
        made.lives.known[f"t/{n}"] = Times(1, 1_000, 1_500, 0)
        made.handoffs.follow(Begun(f"t/{n}", 1, "create"))
    await made.rounds(2 * ROUNDS_MAX)
    assert made.seconds("claim") == (FOLLOWED_MAX, FOLLOWED_MAX / 2)
    assert len(made.lives.reads) <= 8 * FOLLOWED_MAX
    assert not made.handoffs._due, "nothing is followed for ever"


async def test_a_late_reading_measures_what_the_store_has_dated() -> None:
    for acked_in_round in (1, 2, 40, ROUNDS_MAX - 1):
        made = Measured()
        made.lives.known["t/a"] = Times(1, 1_000, 2_000, 0)
        made.handoffs.follow(Begun("t/a", 1, "create"))
        await made.rounds(acked_in_round)
        made.lives.known["t/a"] = Times(1, 1_000, 2_000, 9_000)
        await made.rounds(ROUNDS_MAX)
        assert (made.seconds("claim"), made.seconds("first_ack")) == ((1, 1.0), (1, 7.0)), acked_in_round


async def test_a_live_without_a_claim_is_read_in_every_round() -> None:
    made = Measured()
    made.lives.known["t/a"] = Times(1, 1_000, 0, 0)
    made.handoffs.follow(Begun("t/a", 1, "create"))
    await made.rounds(50)
    assert len(made.lives.reads) == 50
    made.lives.known["t/a"] = Times(1, 1_000, 51_000, 0)
    await made.rounds(1)
    assert made.seconds("claim") == (1, 50.0)


async def test_a_generation_that_is_over_is_followed_no_further() -> None:
    made = Measured()
    made.lives.known["t/a"] = Times(2, 1_000, 2_000, 0)
    made.handoffs.follow(Begun("t/a", 1, "create"))
    made.handoffs.follow(Begun("t/gone", 1, "create"))
    await made.rounds(ROUNDS_MAX)
    assert len(made.lives.reads) == 2
    assert made.seconds("claim") == (None, None)


async def test_no_more_than_the_limit_is_followed() -> None:
    made = Measured()
    for n in range(FOLLOWED_MAX + 10):
        made.handoffs.follow(Begun(f"t/{n}", 1, "create"))
    await made.rounds(1)
    assert len(made.lives.reads) == FOLLOWED_MAX
    made.handoffs.follow(Begun("t/a", 1, "create"))
    await made.rounds(1)
    assert made.lives.reads[-1] == "t/a", "those that are gone have made room"
