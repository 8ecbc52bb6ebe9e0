"""The rule of quotas that are counted over all replicas (access/quotas.py), with replicas that report in turn."""

from contextlib import ExitStack
from itertools import pairwise
from random import Random

import pytest

from dhsched.access.callers import ROLES, Caller
from dhsched.access.quotas import REPORT_MAX, Quotas, fair_share, limits_of, over_pending
from dhsched.access.tenants import TenantLimits
from dhsched.errors import OverQuota
from dhsched.store.records.tenants import Pending, TenantCounts, parse, parse_pending

APP = Caller(key="k", role="app", tenant="acme", scopes=ROLES["app"])


class Replicas:
    """Some replicas and one clock; `report` lets each tell the others."""

    def __init__(self, count: int, **limits: float) -> None:
        self.now = 100.0
        self.all = [Quotas(lambda: self.now) for _ in range(count)]
        for each in self.all:
            each.set_limits({"acme": TenantLimits(**limits)})  # type: ignore[arg-type]

    def report(self, after_s: float = 1.0) -> None:
        self.now += after_s
        said = [each.report() for each in self.all]
        for n, each in enumerate(self.all):
            each.learn([*said[:n], *said[n + 1 :]])

    def second(self, *asked: int) -> list[int]:
        """How many requests each replica admits in a second in which it is asked so many; then all report."""
        admitted = [0] * len(asked)
        for tick in range(100):
            self.now += 0.01
            for n, (quotas, count) in enumerate(zip(self.all, asked, strict=True)):
                for _ in range(count * (tick + 1) // 100 - count * tick // 100):
                    admitted[n] += admits(quotas)
        self.report(after_s=0)
        return admitted


def admits(quotas: Quotas, caller: Caller = APP) -> bool:
    try:
        quotas.take(caller)
    except OverQuota:
        return False
    return True


def test_quota_limits_are_the_tenants_own_else_those_of_every_other() -> None:
    own, other = TenantLimits(lives_max=1), TenantLimits(lives_max=2)
    assert limits_of({"acme": own, "*": other}, "acme") is own
    assert limits_of({"acme": own, "*": other}, "beta") is other
    assert limits_of({"acme": own}, "beta") == TenantLimits()


@pytest.mark.parametrize("kind", ["streams", "waiting"])
def test_quota_of_what_is_held_counts_the_others_and_gives_back(kind: str) -> None:
    r = Replicas(2, streams_max=3, waiting_max=3)
    one, two = r.all
    with one.occupy(kind, "acme"), one.occupy(kind, "acme"):  # type: ignore[arg-type]
        r.report()
        with two.occupy(kind, "acme"):  # type: ignore[arg-type]
            with pytest.raises(OverQuota) as refused, two.occupy(kind, "acme"):  # type: ignore[arg-type]
                pass
            assert refused.value.numbers == {"tenant": "acme", "quota": f"{kind}_max", "used": 3, "limit": 3}
            with two.occupy(kind, "other"):  # type: ignore[arg-type]
                pass
    r.report()
    with ExitStack() as held:
        for _ in range(3):
            held.enter_context(two.occupy(kind, "acme"))  # type: ignore[arg-type]
    assert r.all[0].report() == {}


def test_quota_of_what_is_held_is_passed_at_most_by_what_was_free_at_each_replica() -> None:
    """The bound that docs/guides/access.md states: a burst within one report's time."""
    r = Replicas(3, streams_max=10)
    with ExitStack() as held:
        admitted = 0
        for n in range(60):
            try:
                held.enter_context(r.all[n % 3].occupy("streams", "acme"))
                admitted += 1
            except OverQuota:
                pass
        assert admitted == 3 * 10
        r.report()
        for each in r.all:
            with pytest.raises(OverQuota), each.occupy("streams", "acme"):
                pass


def test_quota_of_requests_is_shared_after_one_report() -> None:
    r = Replicas(3, rate_per_s=90)
    r.second(500, 500, 500)  # Nobody knows of the others.
    for _ in range(3):
        r.second(500, 500, 500)
    assert sum(sum(r.second(500, 500, 500)) for _ in range(10)) == pytest.approx(900, rel=0.05)
    # One asks for less than an equal part, and the others have what it leaves.
    for _ in range(3):
        r.second(10, 500, 500)
    asked = [r.second(10, 500, 500) for _ in range(10)]
    assert [sum(each) / 10 for each in zip(*asked, strict=True)] == pytest.approx([10, 40, 40], rel=0.05)
    # A replica that comes late is not starved, and one alone has everything.
    for _ in range(3):
        r.second(0, 0, 500)
    assert sum(r.second(0, 0, 500)[2] for _ in range(10)) == pytest.approx(900, rel=0.05)
    r.second(0, 500, 500)
    assert sum(r.second(0, 500, 500)[1] for _ in range(10)) == pytest.approx(450, rel=0.05)


def test_quota_shares_never_add_up_to_more_than_the_limit() -> None:
    for seed in range(300):
        rng = Random(seed)
        limit = rng.uniform(1, 100)
        asked = [rng.choice([0, rng.uniform(0, 20), rng.uniform(0, 200)]) for _ in range(rng.randrange(1, 7))]
        shares = [fair_share(limit, asked[:n] + asked[n + 1 :]) for n in range(len(asked))]
        used = [min(each, share) for each, share in zip(asked, shares, strict=True)]
        assert sum(used) <= limit * (1 + 1e-9), seed
        assert sum(used) == pytest.approx(min(limit, sum(asked))), seed
        # Who asks for more does not get less.
        ranked = sorted(zip(asked, used, strict=True))
        assert all(a[1] <= b[1] + 1e-9 for a, b in pairwise(ranked)), seed


def test_quota_of_requests_says_its_numbers_and_slows_streams() -> None:
    r = Replicas(1, rate_per_s=2)
    [quotas] = r.all
    assert admits(quotas) and admits(quotas)
    with pytest.raises(OverQuota) as refused:
        quotas.take(APP)
    assert refused.value.numbers == {"tenant": "acme", "quota": "rate_per_s", "used": 3, "limit": 2}
    assert refused.value.retry_after_s == 1
    assert quotas.slow(APP, 4) == pytest.approx(2.0)
    quotas.set_limits({})
    assert admits(quotas) and quotas.slow(APP, 1_000) == 0


def test_quota_of_requests_counts_only_keys_of_the_tenant() -> None:
    r = Replicas(1, rate_per_s=1)
    for role in ("admin", "operator", "reader", "worker", "metrics", "boot"):
        other = Caller(key="k", role=role, tenant="acme", scopes=frozenset())
        assert all(admits(r.all[0], other) for _ in range(5)), role
    assert [admits(r.all[0]) for _ in range(2)] == [True, False]


def test_quota_of_pending_input_goes_by_the_last_measurement_and_the_limits_now() -> None:
    limits = {"a": TenantLimits(pending_bytes_max=100), "b": TenantLimits(), "*": TenantLimits(pending_bytes_max=50)}
    pending = {"a": 100, "b": 10**9, "c": 49, "d": 51}
    assert over_pending(limits, pending) == {"a": (100, 100), "d": (51, 50)}
    assert over_pending({"a": TenantLimits(pending_bytes_max=101)}, pending) == {}
    quotas = Quotas(lambda: 1.0)
    assert not quotas.measured and not quotas.shared and not quotas.over_pending
    quotas.set_limits(limits)
    assert quotas.measured == ("*", "a") and quotas.shared and not quotas.over_pending
    quotas.learn_pending(pending)
    numbers = {"tenant": "a", "quota": "pending_bytes_max", "used": 100, "limit": 100}
    assert quotas.too_much_pending("a").numbers == numbers
    assert {*quotas.over_pending} == {"a", "d"}
    quotas.set_limits({**limits, "a": TenantLimits(pending_bytes_max=1_000)})  # It need not be measured anew.
    assert {*quotas.over_pending} == {"d"}
    quotas.learn_pending({})
    assert not quotas.over_pending


def test_quota_reports_are_bounded_and_leave_out_tenants_without_limits() -> None:
    quotas = Quotas(lambda: 1.0)
    with ExitStack() as held:
        for n in range(REPORT_MAX + 5):
            held.enter_context(quotas.occupy("streams", f"t{n}"))
        assert quotas.report() == {}
        quotas.set_limits({"*": TenantLimits(streams_max=5)})
        said = quotas.report()
    assert len(said) == REPORT_MAX and said["t7"] == TenantCounts(1, 0, 0)


def test_quota_reports_are_read_back() -> None:
    assert parse("") == {}
    assert parse_pending("") == Pending(0, {})
    assert parse_pending("17 a 1 b 2") == Pending(17, {"a": 1, "b": 2})
    assert parse("a 1 2 3 b 0 0 9") == {"a": TenantCounts(1, 2, 3), "b": TenantCounts(0, 0, 9)}
