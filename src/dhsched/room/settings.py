"""Settings of a room process."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address
from typing import ClassVar

from dhsched.addresses import DISPATCH, INFER, addresses
from dhsched.errors import BadSetting
from dhsched.settings import TLS_CA, ListenerSettings, bounded, check, check_origins, free, is_loopback, listed
from dhsched.types import check_id
from dhsched.web.proxies import proxies


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
        if self.metrics_port and not self.insecure and not is_loopback(self.metrics_host):
            raise BadSetting(
                f"setting metrics_host is {self.metrics_host or 'every address'}, where anybody could read the "
                "metrics: set it to 127.0.0.1, or give --insecure if the network itself keeps strangers out"
            )

    @property
    def viewers_may_type(self) -> bool:
        """Return whether any viewer may type; where viewers have tokens, these say who."""
        return self.access == "keys" or is_loopback(self.host) if self.text is None else self.text

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
