"""ICE servers: STUN and TURN, for viewers and for the room's own connections. Pure.

A viewer that cannot reach the room directly reaches it through a TURN server. TURN servers ask for credentials, so that
they are not used by everybody. The room makes them for each viewer, by the convention of coturn (`use-auth-secret`):
the user name is the time at which it expires and a name, the password is an HMAC of the user name with a secret that
the room and the TURN server share. They are sent in the answer to the viewer's offer, as Link headers (as WHIP and
WHEP have it), so only a viewer that was admitted gets them.

The room removes addresses from viewers' offers (offers.py), so a TURN server of its own could not be told whom to let
in: towards viewers the room uses STUN alone, and viewers use TURN. The answer of a WHIP ingest has addresses.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Sequence
from dataclasses import dataclass

from dhsched.errors import BadSetting

SERVERS_MAX = 8  # More are refused at start: browsers warn at five, and each is a packet a viewer.
URL = re.compile(
    r"(?P<scheme>stuns?|turns?):(?P<host>[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?"
    r"(\?transport=(?P<transport>udp|tcp))?"
)


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a TURN server asks for."""

    username: str
    password: str


def check_servers(setting: str, urls: Sequence[str], *, has_secret: bool) -> None:
    """Raise BadSetting unless each URL is one of an ICE server, and TURN servers have a secret."""
    if len(urls) > SERVERS_MAX:
        raise BadSetting(f"setting {setting} names {len(urls)} servers, at most {SERVERS_MAX} are allowed")
    for url in urls:
        found = URL.fullmatch(url)
        if found is None or (found["scheme"].startswith("stun") and found["transport"]):
            raise BadSetting(
                f"setting {setting} names {url!r}; each entry must be like stun:turn.example:3478, "
                "turn:turn.example:3478?transport=udp or turns:turn.example:5349"
            )
        if is_turn(url) and not has_secret:
            raise BadSetting(
                f"setting {setting} names {url}, and TURN needs credentials: give the server's static-auth-secret as "
                "turn_secret_file (--turn-secret-file) or DHSCHED_ROOM_TURN_SECRET"
            )


def is_turn(url: str) -> bool:
    return url.startswith("turn")


def credentials(secret: str, name: str, *, until: int) -> Credentials:
    """Return credentials that a TURN server with this secret accepts until `until`, in seconds of Unix time."""
    # A hash, because TURN servers log user names and a viewer's identity is none of their business.
    username = f"{until}:{hashlib.sha256(name.encode()).hexdigest()[:16]}"
    digest = hmac.new(secret.encode(), username.encode(), hashlib.sha1).digest()
    return Credentials(username, base64.b64encode(digest).decode())


class IceServers:
    """The servers of one room, and credentials for them."""

    def __init__(self, *, viewers: Sequence[str], own: Sequence[str], secret: str, ttl_s: int) -> None:
        self._viewers = viewers
        self._own = own
        self._secret = secret
        self._ttl_s = ttl_s

    def links(self, name: str, *, now: float) -> list[str]:
        """Return a Link header for each server of viewers; TURN servers with credentials for the viewer `name`."""
        given = self._credentials(name, now)
        more = f'; username="{given.username}"; credential="{given.password}"; credential-type="password"'
        return [f'<{url}>; rel="ice-server"{more if is_turn(url) else ""}' for url in self._viewers]

    def own(self, *, turn: bool, now: float) -> list[tuple[str, Credentials | None]]:
        """Return the servers of the room's own connections, without TURN servers if `turn` is False."""
        given = self._credentials("room", now)
        return [(url, given if is_turn(url) else None) for url in self._own if turn or not is_turn(url)]

    def _credentials(self, name: str, now: float) -> Credentials:
        return credentials(self._secret, name, until=int(now) + self._ttl_s)
