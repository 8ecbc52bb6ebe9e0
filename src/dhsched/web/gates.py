"""A role's service, gate, listener and TLS, made from its settings."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial

import structlog
from aiohttp import web

from dhsched.access.callers import Caller
from dhsched.access.gate import Gate
from dhsched.access.ring import KeyRing
from dhsched.errors import BadSetting
from dhsched.pauses import PAUSES
from dhsched.settings import ListenerSettings, ReplicaSettings
from dhsched.tasks import cancel
from dhsched.tokens import Tokens
from dhsched.web.figures import PauseFigures
from dhsched.web.origins import make_door
from dhsched.web.proxies import AddressLimit, proxies
from dhsched.web.running import serve
from dhsched.web.server import Service
from dhsched.web.shares import Connections, Load

log = structlog.get_logger(__name__)


def make_service(
    settings: ListenerSettings, *, role: str, instance: str, ready: Callable[[], Awaitable[Sequence[str]]]
) -> Service:
    """Return the service of a role, without its gate."""
    service = Service(
        role=role,
        instance=instance,
        ready=ready,
        load=Load(settings.in_flight_max),
        body_s=settings.body_s,
        door=make_door(settings),
    )
    service.registry.register(PauseFigures(PAUSES))
    if isinstance(settings, ReplicaSettings):
        service.connections = Connections(settings.connections_per_key_max)
    return service


async def serve_role(
    settings: ListenerSettings,
    app: web.Application,
    *,
    stop: asyncio.Event,
    say: Callable[[str], None] | None,
) -> None:
    """Serve until `stop` is set; call `say` with the URL once the role listens."""
    await serve(
        app,
        host=settings.host,
        port=settings.port,
        stop_s=settings.stop_s,
        say=say,
        stop=stop,
        tls=listener_tls(settings),
        head_s=settings.head_s,
        idle_s=settings.idle_s,
        limit=AddressLimit(settings.connections_per_address_max, proxies(settings.trusted_proxies)),
    )


@asynccontextmanager
async def open_gate(service: Service, settings: ReplicaSettings, ring: KeyRing) -> AsyncIterator[None]:
    """Put the service behind its gate, and follow changes of the key ring during the block; where access is open, there
    is no gate, and a warning."""
    if settings.access == "open":
        log.warning("access is open: anybody who reaches this address may do anything", host=settings.host)
    else:
        service.load.fair = True
        service.gate = Gate(ring, rate_per_s=settings.key_rate_per_s, read_boot=partial(boot_caller, Tokens(ring)))
        if not any(key.role == "admin" for key in ring.api_keys.values()):
            log.warning("there is no admin key yet: create one with `dhsched key create --role admin --store URL`")
    refreshing = asyncio.create_task(ring.keep_fresh(), name="key ring")
    try:
        yield
    finally:
        await cancel(refreshing)


async def boot_caller(tokens: Tokens, token: str) -> Caller:
    """Return the caller with this boot token, or raise BadToken."""
    boot = (await tokens.read(token)).boot
    return Caller(boot.key, "boot", "", frozenset(), worker=boot.worker, boot=boot.boot)


def listener_tls(settings: ListenerSettings) -> ssl.SSLContext | None:
    """Return the TLS context of the listener, or None without a certificate."""
    if not settings.tls_cert:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(settings.tls_cert, settings.tls_key)
    except (OSError, ssl.SSLError) as error:
        raise BadSetting(
            f"cannot use the certificate {settings.tls_cert} with the key {settings.tls_key} "
            f"({error.strerror or error}); check tls_cert and tls_key: both are PEM files, and the key fits"
        ) from None
    return context
