"""Types of the API's path and query parameters. Live ids here are without their tenant."""

from __future__ import annotations

from typing import Annotated

import msgspec

from dhsched.client.models.base import UNSET, Optional, Strict
from dhsched.client.models.lives import LiveFilters
from dhsched.client.models.tenants import TenantName
from dhsched.types import Id, WorkerId, WorkerStatus, whole
from dhsched.web import Flag

PAGE_DEFAULT = 100
PAGE_MAX = 1_000  # Rows of one page; a larger `limit` is refused.

Limit = Annotated[int, msgspec.Meta(ge=1, le=PAGE_MAX)]


# -- lives


class CreateQuery(Strict):
    """`wait_s` waits for a free slot instead of answering FULL. `redraw` says that the caller would take another live
    id: where another of several cells has a free slot, the create is refused at once and does not wait. `explain` adds
    why the live was placed there."""

    wait_s: Annotated[float, msgspec.Meta(ge=0, le=600)] = 0
    redraw: Flag = "0"
    explain: Flag = "0"


class ExplainQuery(Strict):
    explain: Flag = "0"


class ListQuery(LiveFilters):
    """Filters narrow the list; `after` is the `next` of the page before."""

    tenant: Id | Optional = UNSET
    after: Id | Optional = UNSET
    limit: Limit = PAGE_DEFAULT


class DeadPath(Strict):
    live_id: Id
    letter: Annotated[str, whole(r"[0-9a-f]{16}")]


# -- cells


class CellQuery(Strict):
    """`cell` names one cell of several."""

    cell: Id | Optional = UNSET


class CellsQuery(Strict):
    """`pool` counts the slots of this Pool alone."""

    pool: Id | Optional = UNSET


# -- Workers


class WorkerPath(Strict):
    worker: WorkerId


class WorkersQuery(Strict):
    """Filters narrow the list; `after` is the `next` of the page before."""

    pool: Id | Optional = UNSET
    status: WorkerStatus | Optional = UNSET
    after: WorkerId | Optional = UNSET
    limit: Limit = PAGE_DEFAULT


# -- Pools, DigitalIDs


class PoolPath(Strict):
    pool: Id


class TenantPath(Strict):
    tenant: TenantName


class UsagePath(Strict):
    tenant: Id


class DigitalIdPath(Strict):
    digital_id: Id


class DeleteQuery(Strict):
    """`force` also deletes a resource that is in use."""

    force: Flag = "0"
