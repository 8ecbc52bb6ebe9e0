"""Settings of the WHIP output, and when an ingest counts as silent."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dhsched.errors import BadSetting
from dhsched.room import whip
from dhsched.room.settings import RoomSettings
from dhsched.room.whip import Silence


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"whip": "ingest.example/{live}"}, "must be like"),
        ({"whip": "ftp://ingest.example/{live}"}, "must be like"),
        ({"whip": "https:///{live}"}, "must be like"),
        ({"whip": "https://ingest.example/whip"}, "sent to one place"),
        ({"whip": "https://ingest.example/whip", "whip_token_file": "token"}, "sent to one place"),
        ({"whip": "http://ingest.example/{live}", "whip_token_file": "token"}, "use https"),
        ({"whip_token_file": "token"}, "give --whip"),
        ({"whip": "https://ingest.example/{live}", "whip_idle_s": 0}, "whip_idle_s"),
    ],
)
def test_a_whip_address_that_could_not_work_is_refused(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(BadSetting, match=says):
        RoomSettings(**wrong)


@pytest.mark.parametrize(
    "right",
    [
        {"whip": "https://ingest.example/whip/{live}", "whip_token_file": "token"},
        {"whip": "https://ingest.example/w", "whip_token_file": "keys/{live}"},
        {"whip": "http://127.0.0.1:8080/{live}", "whip_token_file": "token"},
        {"whip": "http://ingest.example/{live}", "whip_token_file": "token", "insecure": True},
        {"whip": "http://ingest.example/{live}"},
    ],
)
def test_a_whip_address_that_can_work(right: dict[str, Any]) -> None:
    assert RoomSettings(**right).whip == right["whip"]


async def test_an_end_that_gets_packets_and_sends_none_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    now = 100.0
    monkeypatch.setattr(loop, "time", lambda: now)
    silence = Silence()

    def after(seconds: float, sent: int, received: int) -> bool:
        nonlocal now
        now += seconds
        return silence.is_over(sent, received)

    assert not after(60, 10, 0) and not after(60, 20, 0), "it never sent anything, and is not judged by it"
    assert not after(60, 30, 1)
    assert not after(whip.SILENT_MAX_S - 1, 40, 1)
    assert not after(0.5, 50, 2), "it sends"
    assert not after(60, 50, 2), "nothing was sent to it, so it owes no report"
    assert not after(10, 60, 2)
    assert after(10, 70, 2)
    assert not after(0.5, 80, 3)
