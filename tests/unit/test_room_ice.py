"""ICE servers of a room: what is accepted, and what a viewer is told."""

from __future__ import annotations

import base64
import hashlib
import hmac
from pathlib import Path
from typing import Any

import pytest

from dhsched.errors import BadSetting
from dhsched.room.ice import SERVERS_MAX, IceServers, credentials
from dhsched.room.settings import RoomSettings
from dhsched.room.tracks import configured


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"ice_servers": "turn.example:3478"}, "each entry must be like"),
        ({"ice_servers": "http://turn.example"}, "each entry must be like"),
        ({"ice_servers": "stun:turn.example?transport=udp"}, "each entry must be like"),
        ({"ice_servers": "turn:turn.example?transport=sctp", "turn_secret": "s"}, "each entry must be like"),
        ({"ice_servers": 'turn:a>;rel="x', "turn_secret": "s"}, "each entry must be like"),
        ({"ice_servers": "turn:turn.example"}, "TURN needs credentials"),
        ({"own_ice_servers": "turns:turn.example:5349"}, "TURN needs credentials"),
        ({"ice_servers": ",".join(["stun:turn.example"] * (SERVERS_MAX + 1))}, "at most"),
        ({"turn_ttl_s": 5}, "turn_ttl_s"),
    ],
)
def test_servers_that_could_not_be_used_are_refused(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(BadSetting, match=says):
        RoomSettings(**wrong)


def test_the_secret_is_given_once(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("from a file\n")
    assert RoomSettings(turn_secret_file=str(file)).shared_turn_secret == "from a file"
    assert RoomSettings(turn_secret="given").shared_turn_secret == "given"
    with pytest.raises(BadSetting, match="give one of them"):
        _ = RoomSettings(turn_secret="given", turn_secret_file=str(file)).shared_turn_secret


def test_credentials_are_made_as_coturn_reads_them() -> None:
    made = credentials("secret", "demo/Ben", until=1_800_000_000)
    until, _, name = made.username.partition(":")
    assert until == "1800000000" and name and "Ben" not in name, "a TURN server logs names"
    expected = hmac.new(b"secret", made.username.encode(), hashlib.sha1).digest()
    assert base64.b64decode(made.password) == expected
    assert credentials("secret", "demo/Ann", until=1_800_000_000).username != made.username


def test_viewers_are_told_of_their_servers_and_the_room_has_its_own() -> None:
    urls = ("stun:turn.example:3478", "turn:turn.example:3478?transport=udp", "turns:[2001:db8::1]:5349")
    servers = IceServers(viewers=urls, own=urls[:2], secret="secret", ttl_s=600)
    links = servers.links("demo/Ben", now=1_000.9)
    assert links[0] == '<stun:turn.example:3478>; rel="ice-server"', "STUN asks for no credentials"
    given = credentials("secret", "demo/Ben", until=1_600)
    more = f'rel="ice-server"; username="{given.username}"; credential="{given.password}"; credential-type="password"'
    assert links[1:] == [f"<{url}>; {more}" for url in urls[1:]]
    assert [url for url, _ in servers.own(turn=False, now=0)] == [urls[0]], "towards viewers"
    [stun, turn] = configured(servers.own(turn=True, now=0)).iceServers or []
    assert (stun.urls, stun.username) == ([urls[0]], None) and turn.urls == [urls[1]] and turn.username
    assert configured([]).iceServers == [], "none at all, rather than aiortc's default"
