"""The gate: checks the token, rate, scopes and tenant of every request where access is by keys.

A 401 has the same message for every reason, and takes the same path: a token or key that is not valid is checked once
more after the key ring was read again, because another replica may have just made its key or secret. A valid token is
cached by its text, so that its signature is not verified for each request.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import ceil

from dhsched.access import api_keys, api_tokens
from dhsched.access.bucket import Bucket
from dhsched.access.callers import NOBODY, ROLES, Caller, Role, Scope
from dhsched.access.ring import KeyRing
from dhsched.access.rules import Rule, rule_of
from dhsched.access.sessions import session_of
from dhsched.errors import DhschedError, Forbidden, StoreError, TooManyRequests, Unauthorized
from dhsched.types import check_id

TENANT_HEADER = "X-Tenant"
REMEMBERED_MAX = 4_096  # Past this many cached tokens, the oldest is dropped and verified again when it returns.
UNAUTHORIZED = (
    "this needs a valid token: mint one with an API key at POST /v1/tokens, and send it as Authorization: Bearer TOKEN"
)
ReadBoot = Callable[[str], Awaitable[Caller]]
"""Returns the caller with this boot token, or raises an error."""


@dataclass(frozen=True, slots=True)
class Known:
    """The caller of a valid token, the time until which it is valid, and the bucket of its key."""

    caller: Caller
    until: float
    bucket: Bucket


class Gate:
    """The gate of one replica."""

    def __init__(
        self,
        ring: KeyRing,
        *,
        rate_per_s: float,
        read_boot: ReadBoot | None = None,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.ring = ring
        self.read_boot = read_boot
        self._rate_per_s = rate_per_s
        self._clock = clock
        self._monotonic = monotonic
        self._known: OrderedDict[str, Known] = OrderedDict()
        self._buckets: dict[str, Bucket] = {}
        self._open: dict[int, tuple[str, Callable[[], None]]] = {}
        ring.changed.append(self._ring_changed)

    async def admit(self, headers: Mapping[str, str], name: str, *, counted: bool = True) -> Caller:
        """Return the caller of endpoint `name`, or raise Unauthorized, Forbidden or TooManyRequests. A request that is
        not `counted` takes nothing of its key's rate."""
        rule = rule_of(name)
        if rule.public:
            return NOBODY
        given = headers.get("Authorization", "")
        shown = bearer(given) if given else session_of(headers)
        # Only tokens are cached. An endpoint that needs a key must refuse a token, or it could renew itself for ever.
        known = self._known.get(shown) if "token" in rule.shown else None
        if known is None or known.until < self._clock():
            known = await self._identify(shown, rule)
        wait_s = known.bucket.take(self._monotonic()) if counted else 0.0
        if wait_s > 0:
            raise TooManyRequests(
                f"key {known.caller.key} may make {known.bucket.rate_per_s:g} requests a second at this replica; try "
                f"again in {wait_s:.1f} s, or ask for a key with a higher rate",
                retry_after_s=max(1, ceil(wait_s)),
            )
        if not rule.allows(known.caller):
            refused = Forbidden(
                f"a token of role {known.caller.role} with scopes {', '.join(sorted(known.caller.scopes)) or 'none'} "
                f"does not allow {name}; the endpoint needs {' or '.join(sorted(rule.scopes | {'admin'}))}"
            )
            refused.caller = known.caller
            raise refused
        tenant = headers.get(TENANT_HEADER)
        return known.caller if tenant is None else for_tenant(known.caller, tenant)

    def slow(self, caller: Caller, count: int) -> float:
        """Return for how many seconds not to read from a caller that has sent `count` items over a socket."""
        bucket = self._buckets.get(caller.key)
        return 0.0 if bucket is None else bucket.charge(count, self._monotonic())

    @contextmanager
    def open_while(self, caller: Caller, close: Callable[[], None]) -> Iterator[None]:
        """Call `close` if the caller's key is revoked during the block: for connections that stay open."""
        self._open[id(close)] = (caller.key, close)
        try:
            yield
        finally:
            del self._open[id(close)]

    def mint(self, caller: Caller, *, ttl_s: int, role: Role | None, tenant: str | None, scopes: list[Scope]) -> str:
        """Return a token for this caller, or with fewer scopes. Only an admin may name another role or tenant."""
        role = role or caller.role  # type: ignore[assignment]
        tenant = tenant or caller.tenant
        if not caller.admin and (role != caller.role or tenant != caller.tenant):
            raise Forbidden(
                f"a key of role {caller.role} for tenant {caller.tenant} mints tokens only for these, not for {role} "
                f"of {tenant}; use an admin key"
            )
        assert role is not None
        allowed = ROLES[role]
        if outside := [scope for scope in scopes if scope not in allowed]:
            raise Forbidden(f"role {role} has no scope {', '.join(outside)}; it has {', '.join(sorted(allowed))}")
        narrowed = replace(caller, role=role, tenant=tenant, scopes=frozenset(scopes) or allowed)
        kid = self.ring.newest("access")
        secret = self.ring.secrets("access")[kid]
        return api_tokens.sign(narrowed, kid=kid, secret=secret, ttl_s=ttl_s, now=self._clock())

    # -- who is it

    async def _identify(self, shown: str, rule: Rule) -> Known:
        known = await self._find(shown, rule) if shown else None
        if known is None and shown:
            await self.ring.reread()
            known = await self._find(shown, rule)
        if known is None:
            raise Unauthorized(UNAUTHORIZED)
        return known

    async def _find(self, shown: str, rule: Rule) -> Known | None:
        if api_keys.is_key(shown):
            return self._known_by_key(shown) if "key" in rule.shown else None
        found = self._known_by_token(shown) if "token" in rule.shown else None
        if found is None and "boot" in rule.shown and self.read_boot is not None:
            return await self._known_by_boot(shown)
        return found

    def _known_by_key(self, text: str) -> Known | None:
        record = self.ring.api_keys.get(api_keys.id_of(text))
        if not api_keys.matches(text, record) or record is None:
            return None
        # Not cached: keys are sent seldom, and their text should not stay in memory.
        return Known(record.caller(), 0.0, self._bucket(record))

    def _known_by_token(self, token: str) -> Known | None:
        claims = api_tokens.verify(token, self.ring.secrets("access"))
        record = None if claims is None else self.ring.api_keys.get(claims.key)
        if claims is None or record is None:
            return None
        if record.role != "admin" and (claims.role, claims.tenant) != (record.role, record.tenant):
            return None
        caller = Caller(record.id, claims.role, claims.tenant, claims.scopes, record.bounds)
        known = Known(caller, claims.expires_at + api_tokens.LEEWAY_S, self._bucket(record))
        self._known[token] = known
        if len(self._known) > REMEMBERED_MAX:
            self._known.popitem(last=False)
        return known

    async def _known_by_boot(self, token: str) -> Known | None:
        assert self.read_boot is not None
        try:
            caller = await self.read_boot(token)
        except StoreError:
            raise
        except DhschedError:
            return None
        # A boot token is sent only when a Worker connects, so it has no rate limit.
        return Known(caller, 0.0, Bucket(1.0, self._monotonic()))

    def _bucket(self, record: api_keys.ApiKey) -> Bucket:
        bucket = self._buckets.get(record.id)
        if bucket is None:
            rate = record.rate_per_s or self._rate_per_s
            bucket = self._buckets[record.id] = Bucket(rate, self._monotonic())
        return bucket

    def _ring_changed(self) -> None:
        """Drop cached tokens and close connections of revoked keys: a key or a secret was made or removed."""
        self._known.clear()
        keys = self.ring.api_keys
        self._buckets = {key: bucket for key, bucket in self._buckets.items() if key in keys}
        for key, close in [*self._open.values()]:
            if key and key not in keys:
                close()


def bearer(header: str) -> str:
    """Return the token of an Authorization header; empty if the header is not of kind Bearer."""
    kind, _, shown = header.partition(" ")
    return shown.strip() if kind.lower() == "bearer" else ""


def for_tenant(caller: Caller, tenant: str) -> Caller:
    """Return the caller with this tenant, or raise Forbidden. No other code chooses a tenant."""
    if tenant == caller.tenant:
        return caller
    if not caller.every_tenant:
        raise Forbidden(
            f"this token is for tenant {caller.tenant}; only a key of role admin, operator or reader may name another"
        )
    return replace(caller, tenant=check_id(tenant, TENANT_HEADER))
