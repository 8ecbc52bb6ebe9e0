"""Pools and DigitalIDs over HTTP: put, get, list and delete the configuration of placement."""

from __future__ import annotations

from typing import Any

from dhsched.client.models.pools import (
    BarredWorkers,
    DigitalIdConfig,
    DigitalIdList,
    NamedDigitalId,
    NamedPool,
    PoolConfig,
    PoolList,
    PutDigitalId,
    PutPool,
)
from dhsched.dispatch.api import parameters as p
from dhsched.dispatch.api.part import Part
from dhsched.dispatch.commit import retry_unknown
from dhsched.dispatch.config import DIGITAL_IDS, POOLS
from dhsched.dispatch.context import DispatchContext
from dhsched.placement.index import WorkerView
from dhsched.types import check_id
from dhsched.web import YES, Endpoint, Problem, Reply, Request

USE_STEP = 1_000  # Lives read per store call while searching for a live that uses a DigitalID.


class Configuration(Part):
    """The endpoints of Pools and DigitalIDs, of one replica."""

    def endpoints(self) -> list[Endpoint]:
        return [
            *self._family("pool", "pools", "Pool", p.PoolPath, PutPool, NamedPool, PoolList),
            *self._family(
                "digital_id", "digital-ids", "DigitalID", p.DigitalIdPath, PutDigitalId, NamedDigitalId, DigitalIdList
            ),
        ]

    def _family(
        self, name: str, path: str, what: str, path_type: Any, body: Any, reply: Any, list_reply: Any
    ) -> list[Endpoint]:
        """Return the endpoints list, get, put and delete of one kind of resource."""
        one, problems = f"/v1/{path}/{{{name}}}", ["NOT_FOUND"]
        put_problems = ["NO_SUCH_POOL"] if name == "digital_id" else []
        common: dict[str, Any] = {"tag": path, "path": one, "path_type": path_type}
        return [
            Endpoint(
                name=f"list_{name}s",
                method="GET",
                path=f"/v1/{path}",
                handler=getattr(self, f"list_{name}s"),
                summary=f"Every {what}.",
                tag=path,
                replies={200: list_reply},
            ),
            Endpoint(
                name=f"get_{name}",
                method="GET",
                handler=getattr(self, f"get_{name}"),
                summary=f"One {what}.",
                replies={200: reply},
                problems=problems,
                **common,
            ),
            Endpoint(
                name=f"put_{name}",
                method="PUT",
                handler=getattr(self, f"put_{name}"),
                summary=f"Make or replace a {what}.",
                body=body,
                replies={200: reply, 201: reply},
                problems=put_problems,
                **common,
            ),
            Endpoint(
                name=f"delete_{name}",
                method="DELETE",
                handler=getattr(self, f"delete_{name}"),
                summary=f"Delete a {what}; if it is in use, only with `force`.",
                query=p.DeleteQuery,
                replies={204: None},
                problems=[*problems, "IN_USE"],
                **common,
            ),
        ]

    # -- Pools

    async def list_pools(self, asked: Request) -> PoolList:
        await self.context.fleet.refresh()
        return PoolList([self._pool(name) for name in self.context.fleet.pool_names()])

    async def get_pool(self, asked: Request) -> NamedPool:
        name = check_id(asked.path.pool, "pool")
        await self.context.fleet.refresh()
        pool = self._pool(name)
        if not pool.configured and not pool.workers:
            raise no_pool(name)
        return pool

    async def put_pool(self, asked: Request) -> Reply:
        name = check_id(asked.path.pool, "pool")
        known = await configure(self.context, POOLS, name, asked.body)
        return Reply(self._pool(name), status=200 if known else 201)

    async def delete_pool(self, asked: Request) -> Reply:
        name = check_id(asked.path.pool, "pool")
        await self.context.fleet.refresh()
        if name not in self.context.fleet.pools:
            raise no_pool(name)
        if asked.query.force not in YES:
            self.refuse_pool_in_use(name)
        await configure(self.context, POOLS, name, None)
        return Reply(status=204)

    def refuse_pool_in_use(self, name: str, *, copied: bool = False) -> None:
        """Raise IN_USE if the Pool has Workers, or DigitalIDs list it. `copied`: the DigitalIDs of this cell are a
        copy, which may be older than those of the first cell, so they do not count."""
        workers, configs = self._pool(name).workers, self.context.fleet.digital_ids
        listed = [] if copied else [each for each, config in configs.items() if lists(config, name)]
        if workers or listed:
            raise Problem(
                "IN_USE",
                f"Pool {name} is in use: it has {workers} Workers and {len(listed)} DigitalIDs list it"
                f"{': ' + ', '.join(listed[:5]) if listed else ''}; change these first, or delete it with force",
                pool=name,
                workers=workers,
                digital_ids=listed,
            )

    def _pool(self, name: str) -> NamedPool:
        return pool_of(self.context, name)

    # -- DigitalIDs

    async def list_digital_ids(self, asked: Request) -> DigitalIdList:
        await self.context.fleet.read_config()
        found = self.context.fleet.digital_ids
        return DigitalIdList([NamedDigitalId(name, config) for name, config in sorted(found.items())])

    async def get_digital_id(self, asked: Request) -> NamedDigitalId:
        name = check_id(asked.path.digital_id, "digital_id")
        await self.context.fleet.read_config()
        config: DigitalIdConfig | None = self.context.fleet.digital_ids.get(name)
        if config is None:
            raise Problem("NOT_FOUND", f"DigitalID {name} does not exist; list the DigitalIDs", digital_id=name)
        return NamedDigitalId(name, config)

    async def put_digital_id(self, asked: Request) -> Reply:
        name, body = check_id(asked.path.digital_id, "digital_id"), asked.body
        await self.context.fleet.refresh()
        names = [entry.pool for entry in body.pools]
        for at, pool in enumerate(names):
            if pool in names[:at]:
                raise Problem("NO_SUCH_POOL", f"DigitalID {name} lists Pool {pool} twice; list it once", pool=pool)
            found = self._pool(check_id(pool, f"$.pools[{at}].pool"))
            if not found.configured and not found.workers:
                # Otherwise a misspelt Pool would be noticed only when creates wait for Workers that never come.
                raise Problem(
                    "NO_SUCH_POOL",
                    f"DigitalID {name} lists Pool {pool}, which does not exist; put the Pool first",
                    pool=pool,
                    field=f"$.pools[{at}].pool",
                )
        known = await configure(self.context, DIGITAL_IDS, name, body)
        return Reply(NamedDigitalId(name, self.context.fleet.digital_ids.get(name, body)), status=200 if known else 201)

    async def delete_digital_id(self, asked: Request) -> Reply:
        name = (await self.get_digital_id(asked)).name
        if asked.query.force not in YES:
            await self.refuse_digital_id_in_use(name)
        await configure(self.context, DIGITAL_IDS, name, None)
        return Reply(status=204)

    async def refuse_digital_id_in_use(self, name: str) -> None:
        """Raise IN_USE if a live that has not ended has this DigitalID."""
        live = await self._live_of(name)
        if live is not None:
            raise Problem(
                "IN_USE",
                f"DigitalID {name} is in use, for example by live {live}, which could not be placed anew without it; "
                "end its lives first, or delete it with force",
                digital_id=name,
                live_id=live,
            )

    async def _live_of(self, digital_id: str) -> str | None:
        """Return a live, of any tenant, that has this DigitalID and has not ended, or None. This may read all lives."""
        after = ""
        while names := await self.context.records.lives.all_names(after, USE_STEP):
            for row in await self.context.records.lives.rows(names):
                if row.digital_id == digital_id and row.state != "ended":
                    return row.live.partition("/")[2]
            after = names[-1]
        return None


def pool_of(context: DispatchContext, name: str) -> NamedPool:
    """Return a Pool with what this replica knows of its Workers."""
    fleet = context.fleet
    workers = [each for each in fleet.view.workers.values() if each.pool == name]
    by_status: dict[str, list[WorkerView]] = {}
    for each in workers:
        by_status.setdefault(each.barred, []).append(each)
    placeable = by_status.pop("", [])
    config = fleet.pools.get(name)
    return NamedPool(
        name=name,
        config=config or PoolConfig(),
        configured=config is not None,
        workers=len(workers),
        placeable=len(placeable),
        load=sum(each.load for each in placeable),
        capacity=sum(each.capacity for each in placeable),
        free=sum(max(0, each.capacity - each.load) for each in placeable),
        barred={
            status: BarredWorkers(len(some), sum(each.load for each in some), sum(each.capacity for each in some))
            for status, some in sorted(by_status.items())
        },
    )


async def configure(context: DispatchContext, kind: str, name: str, value: Any) -> bool:
    """Put (or, without a value, delete) a record of the configuration. Return whether it was there before."""
    known = await retry_unknown(context, "configure", lambda: context.store.records.config.put(kind, name, value))
    await context.fleet.read_config()
    return known


def lists(config: DigitalIdConfig, pool: str) -> bool:
    return any(entry.pool == pool for entry in config.pools)


def no_pool(name: str) -> Problem:
    return Problem("NOT_FOUND", f"Pool {name} does not exist; list the Pools", pool=name)
