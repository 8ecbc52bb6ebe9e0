"""The paper's placement experiments in small, on the simulator: what stale views do to the load (paper, 8.4)."""

from statistics import mean

import pytest

from dhsched.placement import POLICIES
from dhsched.simulate import Result, Schedule, simulate
from evaluation.workloads import burst, hierarchy


def run(policy: str, *, seed: int = 1, placements_per_snapshot: int = 1_000, fallback: bool = True) -> Result:
    return simulate(
        burst(seed), POLICIES[policy], placements_per_snapshot=placements_per_snapshot, seed=seed, fallback=fallback
    )


def test_share_weights_keep_stale_views_tight() -> None:
    """128 Workers, 16 replicas, 16,000 creates at 1,000 per snapshot: about 60 with +1, about 10 with the share."""
    shared = [run("bottom-tier", seed=seed) for seed in (1, 2)]
    paper = [run("bottom-tier-paper", seed=seed) for seed in (1, 2)]
    assert mean(result.spread for result in paper) > 4 * mean(result.spread for result in shared)
    assert max(result.spread for result in shared) <= 14
    assert all(result.failed_creates == 0 and result.rejected_candidates == 0 for result in shared)


def test_very_stale_views_fail_creates_by_plus_one_and_none_by_share() -> None:
    paper = run("bottom-tier-paper", placements_per_snapshot=4_000, fallback=False)
    shared = run("bottom-tier", placements_per_snapshot=4_000, fallback=False)
    assert paper.failed_creates > 2_000 and paper.spread > 100
    assert shared.failed_creates == 0 and shared.spread <= 14


def test_the_weight_is_the_measured_share_not_the_number_of_replicas() -> None:
    """One replica takes all the traffic, over Workers that start uneven: +R throws its own good knowledge away."""
    workload = burst(1, creates=8_000, load_max=150, replica_weights=[1, *[0] * 15])
    by_share, by_replicas = (
        simulate(workload, POLICIES[policy], placements_per_snapshot=1_000, seed=1)
        for policy in ("bottom-tier", "bottom-tier-replicas")
    )
    assert by_replicas.spread > 4 * by_share.spread


def test_near_saturation_only_the_fallback_finds_the_last_slots() -> None:
    workload = burst(1, workers=64, creates=7_350, capacity=115, load_max=0)  # 7,350 creates on 7,360 slots.
    without, with_fallback = (
        simulate(workload, POLICIES["bottom-tier-paper"], placements_per_snapshot=1_000, seed=1, fallback=fallback)
        for fallback in (False, True)
    )
    assert without.failed_creates > 0
    assert with_fallback.failed_creates == 0 and with_fallback.fallback_placements > 0


def test_strict_min_herds_and_exact_does_not() -> None:
    """The paper reports 205.7 and 27,549 rejected candidates for Strict-Min."""
    herded = run("strict-min", fallback=False)
    assert herded.spread > 195 and 25_000 < herded.rejected_candidates < 32_000
    exact = run("exact")
    assert exact.spread <= 1 and exact.failed_creates == 0


def test_pool_preference_is_kept_and_the_burst_completes() -> None:
    workload = hierarchy(1, creates=4_000)
    ours, blind = (
        simulate(workload, POLICIES[policy], placements_per_snapshot=250, seed=1)
        for policy in ("bottom-tier", "least-load")
    )
    assert ours.failed_creates == 0
    assert ours.off_tier_share < 0.2 < 0.4 < blind.off_tier_share


@pytest.mark.parametrize("schedule", list(Schedule))
@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_same_seed_same_result_and_never_more_than_fits(policy: str, schedule: Schedule) -> None:
    def again() -> Result:
        return simulate(
            burst(3, workers=16, replicas=4, creates=400, capacity=20, load_max=4),
            POLICIES[policy],
            placements_per_snapshot=40,
            seed=3,
            schedule=schedule,
        )

    first = again()
    assert first == again()
    free = sum(worker.capacity - worker.load for worker in burst(3, workers=16, capacity=20, load_max=4).workers)
    assert first.creates - first.failed_creates == min(400, free)  # With the fallback, FULL means full.
    assert first.failed_creates == 0 or first.spread == 0
