"""How often viewers may type; and where a room may listen."""

from __future__ import annotations

import contextlib

import pytest

from dhsched.access.viewers import VerifiedViewer, Viewer
from dhsched.errors import BadSetting, TooManyRequests
from dhsched.room import rates
from dhsched.room.rates import Rates
from dhsched.room.settings import RoomSettings
from dhsched.web.proxies import site_of


def test_an_address_a_live_and_interrupts_have_rates_of_their_own() -> None:
    now = 0.0
    made = Rates(RoomSettings(viewer_rate_per_s=2, live_rate_per_s=4), clock=lambda: now)

    def takes(address: str, live: str = "L", kind: str = "text") -> int:
        taken = 0
        for _ in range(10):
            try:
                made.take(address=address, live=live, kind=kind)
            except TooManyRequests as refused:
                assert refused.retry_after_s >= 1
                return taken
            taken += 1
        return taken

    assert [takes("10.0.0.1"), takes("10.0.0.1", "M"), takes("10.0.0.2"), takes("10.0.0.3")] == [2, 0, 2, 0]
    assert takes("10.0.0.3", "M") == 1, "what the live refused counted for its address"
    assert [takes("10.0.0.1", kind="interrupt"), takes("10.0.0.2", kind="interrupt")] == [1, 0]
    now = 1.0
    assert takes("10.0.0.1") == 2 and takes("10.0.0.1", kind="interrupt") == 0
    now = 2.0
    assert takes("10.0.0.1", kind="interrupt") == 1


def test_only_so_many_addresses_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "BUCKETS_MAX", 8)
    made = Rates(RoomSettings(live_rate_per_s=1_000))
    for n in range(100):
        made.take(address=f"10.0.0.{n}", live="L", kind="text")
    assert len(made._buckets) == 8


def test_one_viewer_has_all_addresses_of_its_site() -> None:
    assert site_of("2001:db8:1:2:3:4:5:6") == site_of("2001:db8:1:2::9") != site_of("2001:db8:1:3::9")
    assert site_of("::ffff:10.0.0.7") == site_of("10.0.0.7") != site_of("10.0.0.8")
    assert site_of("fe80::1%eth0") == site_of("fe80::2") and site_of("") == ""


def test_a_room_that_others_can_reach_must_say_so_and_takes_no_text() -> None:
    for host in ("0.0.0.0", "10.0.0.7", "room.example", ""):
        with pytest.raises(BadSetting, match="--insecure"):
            RoomSettings(host=host, access="open")
        assert not RoomSettings(host=host, access="open", insecure=True).viewers_may_type
        assert RoomSettings(host=host, access="open", insecure=True, text=True).viewers_may_type
        assert RoomSettings(host=host, insecure=True).viewers_may_type, "whose token says so"
        with pytest.raises(BadSetting, match="without TLS"):
            RoomSettings(host=host)
        with pytest.raises(BadSetting, match="metrics_host"):
            RoomSettings(metrics_host=host)
    assert RoomSettings().viewers_may_type and not RoomSettings(text=False).viewers_may_type
    assert RoomSettings(access="open").viewers_may_type


def test_a_viewer_token_has_rates_of_its_own() -> None:
    now = 0.0
    made = Rates(RoomSettings(viewer_rate_per_s=2, live_rate_per_s=100), clock=lambda: now)

    def takes(identity: str, kind: str = "text", **rates_: float) -> int:
        viewer = VerifiedViewer(Viewer("t/L", frozenset(), identity, **rates_), "1", "n", 1e12)
        taken = 0
        with contextlib.suppress(TooManyRequests):
            for _ in range(10):
                made.take(address="10.0.0.1", live="L", kind=kind, viewer=viewer)
                taken += 1
        return taken

    # One address, and each viewer has its own rate.
    assert [takes("a"), takes("a"), takes("b")] == [2, 0, 2]
    assert takes("c", say_rate_per_s=5) == 5 and takes("c", "interrupt", interrupt_rate_per_s=3) == 3
    assert takes("d", "interrupt") == 1, "a bucket holds one at least"
