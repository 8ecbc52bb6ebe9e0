"""Creating a live: choose by the view, let the store decide, wait for a slot if requested (paper, algorithm 1).

The common path is one round trip to the store.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import Annotated, Any

import msgspec

from dhsched.client.models import lives as m
from dhsched.client.models.base import UNSET
from dhsched.dispatch.api import parameters as p
from dhsched.dispatch.api.part import Part
from dhsched.dispatch.api.refusals import ended, explanation_of, no_digital_id, no_free_slot, too_many_lives
from dhsched.dispatch.commit import Attempt, Intent, NoFreeSlot, choose_candidates, commit
from dhsched.dispatch.context import DispatchContext, Elsewhere
from dhsched.errors import Forbidden
from dhsched.ownership import outcomes as o
from dhsched.ownership.steps.place import Create
from dhsched.placement import PlacementRequest
from dhsched.types import check_id, check_nesting, check_text, live_key, whole
from dhsched.web import YES, Endpoint, HeaderParameter, Problem, Reply, Request

Key = Annotated[str, whole(r"[!-~]{1,255}", description="Any printable ASCII without spaces.")]
IDEMPOTENCY_KEY = HeaderParameter(
    "Idempotency-Key", Key, "A name for this call: a repeated call with the same key is done once."
)


class Creates(Part):
    """The endpoint that creates lives, of one replica."""

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint(
                name="create_live",
                method="POST",
                path="/v1/lives",
                handler=self.create,
                summary="Place a new live on a Worker.",
                tag="lives",
                body=m.CreateLive,
                query=p.CreateQuery,
                headers=[IDEMPOTENCY_KEY],
                replies={201: m.Placed, 200: m.Placed},
                problems=[
                    *("CONFLICT", "ENDED", "FULL", "STARTING", "WAITING"),
                    *("NOT_FOUND", "NO_ELIGIBLE_POOL", "STORE_FULL"),
                ],
            ),
        ]

    async def create(self, asked: Request) -> Any:
        """Create a live and return where it was placed. Idempotent by live_id, or by Idempotency-Key without one."""
        began = time.perf_counter()
        body: m.CreateLive = asked.body
        live_id = live_id_of(asked, body)
        explained = asked.query.explain in YES
        if explained and not asked.caller.admin:
            raise Forbidden("only an admin's token may use explain, which names Workers and Pools; leave it out")
        fleet = self.context.fleet
        request = fleet.requests.get(body.digital_id)
        if request is None:
            request = await fleet.request(check_id(body.digital_id, "digital_id"))
        if request is None:
            raise no_digital_id(body.digital_id)
        attempt = await place_new(
            self.context,
            asked,
            live_id=live_id,
            operation=self.context.operation(),
            create=as_create(body, *fleet.lifetimes[request.digital_id]),
            request=request,
            wait_s=asked.query.wait_s,
        )
        self.context.metrics.create_seconds.observe(time.perf_counter() - began)
        match attempt.outcome:
            case o.Committed() as done:
                why = explanation_of(self.context, attempt) if explained else None
                return Reply(placed(live_id, done, why), status=200 if done.again else 201)
            case o.Conflict():
                raise Problem(
                    "CONFLICT",
                    f"live {live_id} exists and was created with other parameters; get it, or choose another id",
                    live_id=live_id,
                )
            case o.Ended():
                raise ended(live_id)
            case o.Quota() as reached:
                raise await self._over_quota(asked.caller.tenant, reached)
            case outcome if isinstance(outcome, NoFreeSlot):
                raise await no_free_slot(self.context, live_id, attempt, admin=asked.caller.admin, explained=explained)
            case outcome:
                raise AssertionError(f"place(create) answered {outcome}")

    async def _over_quota(self, tenant: str, reached: o.Quota) -> Problem:
        if (elsewhere := self.context.lives_elsewhere) is None:
            return too_many_lives(tenant, reached.lives, reached.lives_max)
        # The store has compared with what the other cells leave of the limit.
        limit = self.context.service.quotas.limits_of(tenant).lives_max
        return too_many_lives(tenant, reached.lives + await elsewhere.count(tenant), limit)


async def place_new(
    context: DispatchContext,
    asked: Request,
    *,
    live_id: str,
    operation: str,
    create: Create,
    request: PlacementRequest,
    wait_s: float,
) -> Attempt:
    """Request the first generation of a new live, and wait up to `wait_s` for a free slot; return the last attempt.

    Raise OverQuota when the tenant has as many creates that wait as it may.
    """
    refuse_when_store_is_full(context)
    quotas, tenant = context.service.quotas, asked.caller.tenant

    limit = quotas.limits_of(tenant).lives_max if quotas.limits else 0

    def attempt() -> Coroutine[Any, Any, Attempt]:
        intent = Intent(
            live=live_key(tenant, live_id),
            cause="create",
            point="create",
            operation=operation,
            choice=choose_candidates(context, request, caller=asked.caller),
            create=create,
            lives_max=limit,
        )
        if limit and context.lives_elsewhere is not None:
            return commit_beside(context, context.lives_elsewhere, tenant, intent)
        return commit(context, intent)

    made = await attempt()
    if not isinstance(made.outcome, NoFreeSlot) or wait_s <= 0 or context.create_queue.full:
        return made
    loop = asyncio.get_running_loop()
    give_up = loop.time() + min(wait_s, context.settings.wait_max_s)
    waiting = quotas.occupy("waiting", tenant)
    with waiting, context.service.load.parked(asked.caller), context.create_queue.place() as turn:
        while isinstance(made.outcome, NoFreeSlot):
            left_s = give_up - loop.time()
            # A caller that disconnected would never learn of the live: create none for it.
            if left_s <= 0 or context.service.stopping or hung_up(asked):
                break
            turn.clear()
            try:
                async with asyncio.timeout(min(left_s, context.settings.wait_retry_s)):
                    await turn.wait()
            except TimeoutError:
                pass
            made = await attempt()
    return made


async def commit_beside(context: DispatchContext, elsewhere: Elsewhere, tenant: str, intent: Intent) -> Attempt:
    """Commit a create of a tenant whose limit of lives is for all cells: what the others have is taken off here. Raise
    QUOTA if nothing is left, and there is no live of this id that the step would answer for."""
    with elsewhere.creating(tenant) as created:
        used = await elsewhere.count(tenant)
        left = intent.lives_max - used
        if left <= 0 and await context.records.lives.get(intent.live) is None:
            raise too_many_lives(tenant, used, intent.lives_max)
        # With nothing left the live is there. If it is swept before the step: 0 would be no limit.
        attempt = await commit(context, replace(intent, lives_max=max(1, left)))
        if isinstance(attempt.outcome, o.Committed) and not attempt.outcome.again:
            created.made += 1
    return attempt


def refuse_when_store_is_full(context: DispatchContext) -> None:
    """Raise STORE_FULL past `memory_max`: existing lives need the rest of the store's memory to move and to end."""
    share = context.fleet.memory_share
    if share >= context.settings.memory_max:
        raise Problem(
            "STORE_FULL",
            f"the store has used {share:.0%} of its memory; past {context.settings.memory_max:.0%} no lives are "
            "created or changed; end lives, or give the store more memory",
            memory_share=round(share, 3),
        )


def hung_up(asked: Request) -> bool:
    transport = asked.request.transport
    return transport is None or transport.is_closing()


# -- the documents of a create


def live_id_of(asked: Request, body: m.CreateLive) -> str:
    if isinstance(body.live_id, str):
        return body.live_id
    key = asked.header("Idempotency-Key")
    if key:
        return "lv-" + digest(asked.caller.tenant, key)
    return "lv-" + secrets.token_hex(8)


def digest(*parts: str) -> str:
    """Return a short name that is unique to these parts."""
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


def as_create(body: m.CreateLive, idle_s: float | None = None, max_s: float | None = None) -> Create:
    """Return the parts of a new live. `idle_s` and `max_s` are for a request that leaves them out.

    The fingerprint is of the request alone: a retry after a Pool was changed is still the same create.
    """
    room = "" if body.room is UNSET else check_id(body.room, "room")
    metadata, config = as_json(body.metadata, "metadata"), as_json(body.config, "config")
    said = [body.digital_id, room, metadata.decode(), config.decode(), str(body.priority), str(body.immovable)]
    labels = as_labels(body.labels)
    lifetime = (("idle_s", body.idle_s), ("max_s", body.max_s))
    said += [f"{name}={value}" for name, value in lifetime if value is not UNSET]
    said += [f"labels={labels.decode()}"] if labels else []
    return Create(
        digital_id=body.digital_id,
        fingerprint=digest(*said),
        room=room,
        metadata=metadata,
        config=config,
        labels=labels,
        priority=body.priority,
        immovable=body.immovable,
        idle_ms=as_ms(idle_s if body.idle_s is UNSET else body.idle_s),
        max_ms=as_ms(max_s if body.max_s is UNSET else body.max_s),
    )


def as_labels(labels: Sequence[str]) -> bytes:
    """Return labels as the store keeps them: sorted, each once, separated by spaces."""
    if not labels:
        return b""
    text = " ".join(sorted(set(labels)))
    check_text(text, "labels")
    return text.encode()


def as_ms(seconds: float | None) -> int:
    """Return a lifetime as the store keeps it: 0 is no limit."""
    return 0 if seconds is None else round(1_000 * seconds)


def as_json(value: dict[str, Any], field: str) -> bytes:
    """Return one spelling for equal objects, so that a retry by another client library is still the same create."""
    if not value:
        return b""
    check_nesting(value, field)
    try:
        return msgspec.json.encode(value, order="deterministic")
    except (RecursionError, OverflowError, UnicodeEncodeError) as error:
        raise Problem("BAD_REQUEST", f"{field} cannot be stored: {error}", field=f"$.{field}") from error


def placed(live_id: str, done: o.Committed, explanation: Any = None) -> m.Placed:
    later = done.superseded_by
    return m.Placed(
        live_id=live_id,
        worker=done.generation.worker,
        epoch=done.generation.epoch,
        again=done.again,
        superseded_by=None if later is None else m.Generation(later.worker, later.epoch),
        explanation=explanation,
    )
