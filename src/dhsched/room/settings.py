"""Settings of a room process."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlsplit

from dhsched.addresses import DISPATCH, INFER, addresses
from dhsched.errors import BadSetting
from dhsched.room.ice import IceServers, check_servers
from dhsched.settings import (
    TLS_CA,
    ListenerSettings,
    bounded,
    check,
    check_metrics_host,
    check_origins,
    free,
    is_loopback,
    listed,
    one_of,
    read_secret,
)
from dhsched.types import check_id
from dhsched.web.proxies import proxies

LIVE = "{live}"  # In the address of a WHIP ingest and the name of its token's file: the live's id.


@dataclass(frozen=True, slots=True, kw_only=True)
class RoomSettings(ListenerSettings):
    """The settings of one room process, which serves the rooms of many lives."""

    ROLE: ClassVar[str] = "room"

    dispatch: str = free(
        ",".join(DISPATCH), "URLs of Dispatch replicas, separated by commas; if one does not answer, the next is asked."
    )
    infer: str = free(",".join(INFER), "URLs of Infer-Controllers for viewers' text, separated by commas.")
    port: int = bounded(7402, 0, 65535, "Port to listen on; 0 takes any free port.")
    name: str = free("", "Id of the room; made up when empty.")
    addresses: str = free("", "Addresses for media, separated by commas; when empty, the host's, or all of them.")
    tenant: str = free("default", "Tenant whose lives are shown: /live/L1 is this tenant's L1.")
    text: bool | None = free(
        None, "Permission for viewers to type and interrupt; by default yes, but not beyond loopback with open access."
    )
    frame_ancestors: str = free(
        "", "Origins like https://app.example, separated by commas, whose pages may embed the room's page."
    )
    pids: str = free(
        "", "File with the pids of Workers of this machine, which the page shows; only for a room on loopback."
    )
    metrics_host: str = free("127.0.0.1", "Address on which /metrics is served; strangers must not reach it.")
    metrics_port: int = bounded(7403, 0, 65535, "Port on which /metrics is served; 0 serves no metrics.")
    viewer_rate_per_s: float = bounded(
        2,
        0.1,
        1_000,
        "Items a second from one viewer whose token has no rate, or with open access from one address; a quarter of it "
        "for interrupts.",
    )
    live_rate_per_s: float = bounded(
        4, 0.1, 1_000, "Items a second from all viewers of one live; a quarter of it for interrupts."
    )
    lives_max: int = bounded(1_000, 1, 100_000, "Lives with a publisher or a viewer at once; past it BUSY.")
    viewers_max: int = bounded(200, 1, 10_000, "Viewers at once; past it BUSY.")
    viewers_per_address_max: int = bounded(
        0, 0, 10_000, "Viewers at once from one address; past it BUSY. 0 is a quarter of viewers_max."
    )
    connections_per_address_max: int = bounded(
        1_000, 1, 100_000, "TCP connections at once from one address, a Worker's included; further ones are closed."
    )
    connections_per_viewer_max: int = bounded(4, 1, 1_000, "WHEP connections at once of one viewer; past it BUSY.")
    offers_max: int = bounded(
        64, 1, 10_000, "Offers at once whose connection is not up yet; past it one without packets makes way, or BUSY."
    )
    offers_per_address_max: int = bounded(
        0, 0, 10_000, "The same for offers from one address. 0 is a quarter of offers_max."
    )
    in_flight_max: int = bounded(256, 1, 100_000, "Requests worked on at once; past it 503 BUSY.")
    packet_bytes_max: int = bounded(262_144, 1_024, 4_194_304, "Bytes of one packet; a larger one ends its publisher.")
    stun_s: float = bounded(3, 0.1, 120, "Time for a viewer's first packets (STUN) to arrive; then it is given up.")
    connect_s: float = bounded(15, 1, 120, "Time for a viewer's connection to come up; then it is given up.")
    video: str = one_of(
        "vp8", ("vp8", "h264"), "Codec of the video that publishers send, and that viewers and an ingest get."
    )
    ice_servers: str = free(
        "", "URLs of STUN and TURN servers for viewers, like turn:turn.example:3478, separated by commas."
    )
    own_ice_servers: str = free(
        "", "The same for the room's own connections: STUN towards viewers, STUN and TURN towards a WHIP ingest."
    )
    turn_secret: str = free("", "Secret that is shared with the TURN servers (static-auth-secret).", secret=True)
    turn_secret_file: str = free("", "File that contains the turn_secret, instead of the secret itself.")
    turn_ttl_s: int = bounded(3_600, 60, 86_400, "Time for which the TURN credentials of a connection are valid.")
    whip: str = free(
        "", "URL of a WHIP ingest to which each live is sent, {live} in place of the live's id; not sent when empty."
    )
    whip_token_file: str = free(
        "", "File with the ingest's bearer token; {live} in its name gives each live a token of its own."
    )
    whip_idle_s: float = bounded(
        60, 1, 3_600, "Time without a packet of any publisher; then a live's connection to its ingest is ended."
    )
    confirm_s: float = bounded(2, 0.1, 60, "Time between two questions to Dispatch whether a shown live goes on.")
    deadline_s: float = bounded(3, 0.1, 60, "Time for a Dispatch replica or an Infer-Controller to answer.")
    stop_s: float = bounded(2, 0, 600, "Time for requests in flight when the room stops.")
    key: str = free("", "API key for calls to Dispatch, of role room and of the room's tenant.", secret=True)
    key_file: str = free("", "File that contains the key, instead of the key itself.")
    tls_ca: str = TLS_CA

    def __post_init__(self) -> None:
        check(self)
        check_id(self.tenant, "tenant")
        if not (self.dispatch.strip(" ,") and self.infer.strip(" ,")):
            raise BadSetting("a room must reach Dispatch and an Infer-Controller: give --dispatch URL and --infer URL")
        addresses("Dispatch", self.dispatch), addresses("Infer-Controller", self.infer)
        check_origins("frame_ancestors", self.frame_ancestors)
        proxies(self.trusted_proxies)
        for setting in ("ice_servers", "own_ice_servers"):
            has_secret = bool(self.turn_secret or self.turn_secret_file)
            check_servers(setting, listed(getattr(self, setting)), has_secret=has_secret)
        check_whip(self)
        if self.pids and not is_loopback(self.host):
            raise BadSetting(
                f"setting pids is {self.pids}, and viewers from elsewhere would see what runs on this machine: set "
                "host to 127.0.0.1, or leave pids out"
            )
        check_metrics_host(self.metrics_host, port=self.metrics_port, insecure=self.insecure)

    @property
    def viewers_may_type(self) -> bool:
        """Return whether any viewer may type; where viewers have tokens, these say who."""
        return self.access == "keys" or is_loopback(self.host) if self.text is None else self.text

    @property
    def shared_turn_secret(self) -> str:
        """Return the secret of the TURN servers, from `turn_secret` or its file; empty if neither is given."""
        if self.turn_secret and self.turn_secret_file:
            raise BadSetting("both turn_secret and turn_secret_file are given; give one of them")
        file = self.turn_secret_file
        return self.turn_secret or (read_secret(Path(file), "turn_secret_file") if file else "")

    @property
    def dispatch_urls(self) -> tuple[str, ...]:
        return addresses("Dispatch", self.dispatch)

    @property
    def infer_urls(self) -> tuple[str, ...]:
        return addresses("Infer-Controller", self.infer)

    @property
    def media_addresses(self) -> tuple[str, ...]:
        """Return the addresses that viewers send media packets to; none means every address of this machine."""
        if self.addresses:
            return listed(self.addresses)
        try:
            listens = ip_address("127.0.0.1" if self.host == "localhost" else self.host)
        except ValueError:
            return ()
        return () if listens.is_unspecified else (str(listens),)


def check_whip(given: RoomSettings) -> None:
    """Raise BadSetting unless lives can be sent to the WHIP ingest, each to its own place, with the token unread."""
    if not given.whip:
        if given.whip_token_file:
            raise BadSetting("setting whip_token_file is given and whip is not; give --whip URL as well")
        return
    parts = urlsplit(given.whip.replace(LIVE, "live"))
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.fragment:
        raise BadSetting(f"setting whip is {given.whip!r}; it must be like https://ingest.example/whip/{LIVE}")
    if LIVE not in given.whip + given.whip_token_file:
        raise BadSetting(
            f"setting whip is {given.whip}, and all lives would be sent to one place: put {LIVE} where the live's id "
            "belongs, in the URL or in the name of whip_token_file"
        )
    if given.whip_token_file and parts.scheme == "http" and not given.insecure and not is_loopback(parts.hostname):
        raise BadSetting(
            f"setting whip is {given.whip}, and whoever is on the way could read and use the token: use https, or give "
            "--insecure if the network itself keeps strangers out"
        )


def ice_servers(given: RoomSettings) -> IceServers:
    return IceServers(
        viewers=listed(given.ice_servers),
        own=listed(given.own_ice_servers),
        secret=given.shared_turn_secret,
        ttl_s=given.turn_ttl_s,
    )
