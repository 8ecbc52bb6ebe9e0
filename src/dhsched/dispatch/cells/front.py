"""The endpoints of a replica over several cells: which cell answers a request, or how the answers of all become one.

A live is in the cell of its name, for ever (cells/fixed.py). A Worker is where it has registered last. The
configuration and the keys are written in the first cell. What fails in one cell is an error of requests for that cell
alone; a list says which cells it lacks.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from aiohttp import web
from msgspec import structs

from dhsched.access.gate import bearer
from dhsched.access.ring import KeyRing
from dhsched.cells.fixed import cell_of
from dhsched.client.models import summary as sm
from dhsched.client.models.base import UNSET
from dhsched.dispatch.api.cells import shown_to
from dhsched.dispatch.api.summary import OVERVIEW_S
from dhsched.dispatch.cells import answers
from dhsched.dispatch.cells.controllers import ControllersOfCells
from dhsched.dispatch.cells.copies import Copies
from dhsched.dispatch.cells.creates import CreatesOverCells
from dhsched.dispatch.cells.ends import end_in_cells
from dhsched.dispatch.cells.served import ServedCell
from dhsched.dispatch.cells.streams import Streams
from dhsched.dispatch.worker_link import PATH as WORKER_LINK
from dhsched.errors import BadToken, StoreError, StoreUnavailable
from dhsched.store.records.audit import AuditedRequest
from dhsched.tokens import Tokens
from dhsched.types import live_key
from dhsched.web import YES, Endpoint, Problem, Request, Service
from dhsched.web.endpoints import Handler
from dhsched.web.problems import problem_of

HOME_WRITES = frozenset(
    {
        *("put_pool", "put_digital_id", "put_tenant", "delete_tenant"),
        *("create_key", "revoke_key", "rotate_secret", "create_join_token", "join", "unban_worker"),
    }
)
"""Endpoints that write the configuration or the key ring, and look at nothing else."""
ANYWHERE = frozenset(
    {
        *("list_digital_ids", "get_digital_id", "list_tenants", "get_tenant", "list_keys", "list_bans"),
        *("list_viewer_keys", "mint_token", "begin_session", "end_session"),
    }
)
"""Endpoints that any cell answers: they read the configuration, or what the replica has once."""
GONE = frozenset({"gone", "lost"})
CHECK_S = 2.0  # Time between two checks of all cells.
NEXT_S = 0.3  # A reader of the feed of changes does not wait longer for the next overview while it has one,
OLD_S = 10.0  # up to this age.
ROW_S = 1.0  # A cell that has not told of itself by then is listed as not ready.


class Front:
    """The endpoints of one replica. `cells` are all of the deployment, in their order."""

    def __init__(self, cells: Sequence[ServedCell]) -> None:
        self.cells = cells
        self.ring: KeyRing
        self.service: Service
        self.names = [each.name for each in cells]
        self.copies = Copies(cells)
        self.troubles = {each.name: each.trouble for each in cells}
        self._checks: dict[str, asyncio.Task[str]] = {}
        self._by_name = {each.name: each for each in cells}
        self._streams = Streams(cells)
        self._creates = CreatesOverCells(self.names, self.served, self.of_live)
        self.controllers = ControllersOfCells(cells, lambda live: self._by_name[cell_of(self.names, live)])
        self._making: asyncio.Task[None] | None = None  # The next overview.
        self._overview: sm.Overview | None = None
        self._overview_at = float("-inf")

    # -- cells

    def served(self) -> list[ServedCell]:
        """Return the cells that are served, in their order."""
        return [each for each in self.cells if not each.trouble]

    def first_served(self) -> ServedCell:
        for each in self.served():
            return each
        raise StoreUnavailable(f"no cell is served; {self.cells[0].name}: {self.cells[0].trouble}", unknown=False)

    def answering(self) -> list[ServedCell]:
        """Return the cells whose stores seem to answer; all that are served if none does."""
        return [each for each in self.served() if each.answers_now] or self.served()

    def first_answering(self) -> ServedCell:
        return next(iter(self.answering()), None) or self.first_served()

    def of_live(self, tenant: str, live_id: str) -> ServedCell:
        return self._by_name[cell_of(self.names, live_key(tenant, live_id))]

    def named(self, name: str) -> ServedCell:
        """Return the cell of this name; raise NOT_FOUND if there is none."""
        if name not in self._by_name:
            raise Problem("NOT_FOUND", f"cell {name} does not exist; there are {', '.join(self.names)}", cell=name)
        return self._by_name[name]

    async def of_worker(self, worker: str) -> ServedCell:
        """Return the cell of a Worker: where it is registered and not gone, else where it was. Raise StoreUnavailable
        if no cell knows the Worker and one of them cannot be asked."""
        served = self.served()
        seen = {each: row for each in served if (row := each.context.fleet.view.workers.get(worker)) is not None}
        if len(seen) == 1:
            return next(iter(seen))
        # Two cells may have given out one WorkerID, and a view has a Worker for a while that its cell has forgotten.
        asked = [*seen] or served
        asks = (each.promptly(partial(each.records.workers.exists, worker)) for each in asked)
        there = await asyncio.gather(*asks, return_exceptions=True)
        if found := [each for each, one in zip(asked, there, strict=True) if one is True]:
            return min(found, key=lambda each: each in seen and seen[each].barred in GONE)
        if len(served) < len(self.cells) or any(isinstance(one, BaseException) for one in there):
            raise StoreUnavailable(f"Worker {worker} may be in a cell that cannot be asked now", unknown=False)
        return self.first_served()

    async def ready(self) -> Sequence[str]:
        """Return why this replica should get no traffic: only if no cell is ready. The first one that is ready decides;
        what is wrong with the others is known when they have answered, too."""
        for checked in asyncio.as_completed([self._check(each) for each in self.cells]):
            if not await checked:
                return []
        return [f"cell {name}: {trouble}" for name, trouble in self.troubles.items()]

    async def keep_checked(self) -> None:
        """Check all cells, for whoever reads what was found last: the metrics, and /readyz."""
        await self.check()

    async def check(self) -> Mapping[str, str]:
        """Return each cell and why it is not ready, once all have answered."""
        await asyncio.wait([self._check(each) for each in self.cells])
        return self.troubles

    def _check(self, cell: ServedCell) -> asyncio.Task[str]:
        """Return the task that checks a cell: the one that is under way, or a new one."""

        def done(task: asyncio.Task[str]) -> None:
            self._checks.pop(cell.name)
            if not task.cancelled() and task.exception() is None:
                self.troubles[cell.name] = task.result()

        if cell.name not in self._checks:
            self._checks[cell.name] = task = asyncio.create_task(cell.missing(), name=f"check of cell {cell.name}")
            task.add_done_callback(done)
        return self._checks[cell.name]

    def note(self, asked: AuditedRequest) -> None:
        """Write a request into the audit trail, in the first cell that answers."""
        self.first_answering().context.audit.note(asked)

    # -- endpoints

    def endpoints(self) -> list[Endpoint]:
        """Return every endpoint, as a replica of one cell has them."""
        return [replace(each, handler=self.handler(each)) for each in self.first_served().replica.endpoints()]

    def handler(self, endpoint: Endpoint) -> Handler:
        """Return what serves an endpoint over all cells. Raise KeyError for one that nobody has thought of."""
        name, in_path = endpoint.name, endpoint.path_type.__struct_fields__
        if own := self._own.get(name):
            return partial(own, self)
        if "live_id" in in_path:
            return partial(self._in_cell_of_live, name)
        if "worker" in in_path:
            return partial(self._in_cell_of_worker, name)
        if name in HOME_WRITES:
            return partial(self._in_first_cell, name)
        if name in ANYWHERE:
            return partial(self._anywhere, name)
        raise KeyError(f"endpoint {name} is not routed over cells")

    async def _in_cell_of_live(self, name: str, asked: Request) -> Any:
        cell = self.of_live(asked.caller.tenant, asked.path.live_id)
        return named(await cell.answer(name, asked), cell)

    async def _in_cell_of_worker(self, name: str, asked: Request) -> Any:
        cell = await self.of_worker(asked.path.worker)
        return named(await cell.answer(name, asked), cell)

    async def _in_first_cell(self, name: str, asked: Request) -> Any:
        """Write in the first cell what all cells have: it takes over what is newer elsewhere before, and the others
        have the change before it is answered, as far as they can be reached."""
        first = self.cells[0]
        first.refuse_if_away()
        await first.reachable_soon()  # It may fail over now.
        await self.copies.round()
        self.copies.refuse_older()
        answer = await first.answer(name, asked)
        await self.copies.round()
        return answer

    async def _anywhere(self, name: str, asked: Request) -> Any:
        return await self.first_answering().answer(name, asked)

    async def _everywhere(self, name: str, asked: Request) -> tuple[dict[str, Any], list[str]]:
        """Return the answers by cell, and the cells that could not be asked; raise the error if there are no others. A
        refusal of any cell is the refusal of all."""
        found = await self._ask_all(name, asked)
        answered: dict[str, Any] = {}
        errors: dict[str, StoreError] = {}
        for cell, one in zip(self.names, found, strict=True):
            if isinstance(one, StoreError):
                errors[cell] = one
            elif isinstance(one, BaseException):
                raise one
            else:
                answered[cell] = one
        if not answered:
            raise next(iter(errors.values()))
        return answered, [*errors]

    async def _ask_all(self, name: str, asked: Request) -> list[Any]:
        """Return what each cell answers, or its error, in their order."""
        asks = (each.promptly(partial(each.answer, name, asked)) for each in self.cells)
        return await asyncio.gather(*asks, return_exceptions=True)

    async def _where_known(self, name: str, asked: Request) -> tuple[list[Any], list[str]]:
        """Return the answers of the cells that know the resource, and the cells that could not be asked; raise
        NOT_FOUND if no cell knows it."""
        found = await self._ask_all(name, asked)
        answered = [one for one in found if not isinstance(one, BaseException)]
        if answered:
            return answered, [cell for cell, one in zip(self.names, found, strict=True) if isinstance(one, StoreError)]
        errors = [one for one in found if isinstance(one, BaseException)]
        raise next((one for one in errors if isinstance(one, Problem)), errors[0])

    # -- endpoints with a way of their own

    async def create_live(self, asked: Request) -> Any:
        return await self._creates.create(asked)

    async def show_publishing(self, asked: Request) -> Any:
        try:
            live = (await Tokens(self.ring).read_publish(asked.body.token)).live
        except BadToken as error:
            raise Problem("UNAUTHORIZED", str(error)) from error
        cell = self._by_name[cell_of(self.names, live)]
        return named(await cell.answer("show_publishing", asked), cell)

    async def say_blocked(self, asked: Request) -> Any:
        try:
            boot = (await Tokens(self.ring).read(bearer(asked.header("Authorization")))).boot
        except BadToken as error:
            raise Problem("UNAUTHORIZED", str(error)) from error
        return await self.named(boot.cell).answer("say_blocked", asked)

    async def list_lives(self, asked: Request) -> Any:
        found, without = await self._everywhere("list_lives", asked)
        return answers.live_list(found, asked.query.limit, without)

    async def end_lives(self, asked: Request) -> Any:
        return await end_in_cells(self.cells, asked)

    async def list_workers(self, asked: Request) -> Any:
        found, without = await self._everywhere("list_workers", asked)
        return answers.worker_list(found, asked.query.limit, without)

    async def list_recoveries(self, asked: Request) -> Any:
        found, without = await self._everywhere("list_recoveries", asked)
        return answers.recovery_list(found, asked.query.limit, without)

    async def list_audit(self, asked: Request) -> Any:
        found, without = await self._everywhere("list_audit", asked)
        return answers.lacking(answers.audit_list([*found.values()], asked.query.limit), without)

    async def list_events(self, asked: Request) -> Any:
        return await self._streams.events(asked)

    async def follow_changes(self, asked: Request) -> Any:
        return await self._streams.changes(asked, self.overview)

    async def list_pools(self, asked: Request) -> Any:
        found, without = await self._everywhere("list_pools", asked)
        return answers.pool_list([*found.values()], without)

    async def get_pool(self, asked: Request) -> Any:
        found, without = await self._where_known("get_pool", asked)
        return answers.lacking(answers.pool(found), without)

    async def delete_pool(self, asked: Request) -> Any:
        if asked.query.force not in YES:
            for each in self.cells[1:]:
                each.refuse_unless_served()
                # Of a cell that cannot be asked, the Workers that were seen there last count.
                with contextlib.suppress(StoreError):
                    await each.promptly(each.context.fleet.refresh)
                each.replica.configuration.refuse_pool_in_use(asked.path.pool, copied=True)
        return await self._in_first_cell("delete_pool", asked)

    async def delete_digital_id(self, asked: Request) -> Any:
        if asked.query.force not in YES:
            for each in self.cells[1:]:
                each.refuse_unless_served()
                await each.replica.configuration.refuse_digital_id_in_use(asked.path.digital_id)
        return await self._in_first_cell("delete_digital_id", asked)

    async def get_usage(self, asked: Request) -> Any:
        found, without = await self._everywhere("get_usage", asked)
        if without:  # A total that falls and rises again would be billed.
            raise StoreUnavailable(
                f"cell {', '.join(without)} cannot be asked, so the totals are not known", unknown=False
            )
        return answers.usage([*found.values()])

    async def get_rebalance(self, asked: Request) -> Any:
        found, without = await self._where_known("get_rebalance", asked)
        return answers.lacking(answers.rebalance(found), without)

    async def even_out_pool(self, asked: Request) -> Any:
        found, without = await self._where_known("even_out_pool", asked)
        return answers.lacking(answers.rebalance(found), without)

    async def ban_worker(self, asked: Request) -> Any:
        name, others = asked.path.name, [each for each in self.cells[1:] if each.reachable]
        asks = (each.promptly(partial(each.replica.machines.named, name)) for each in others)
        named_so = dict(zip(others, await asyncio.gather(*asks, return_exceptions=True), strict=True))
        banned = await self._in_first_cell("ban_worker", asked)
        for cell, workers in named_so.items():
            # Where a cell cannot be asked, its Workers are lost once the key ring refuses their links.
            if not isinstance(workers, BaseException):
                await cell.replica.machines.force_out_banned(name, workers)
                banned.workers = sorted({*banned.workers, *workers})
        return banned

    async def drain_worker(self, asked: Request) -> Any:
        if (to := asked.body.to_cell) is not UNSET:
            target = self.named(to)
            await target.promptly(lambda: target.store.records.server.ping())  # It may never have been connected.
        return await self._in_cell_of_worker("drain_worker", asked)

    async def get_summary(self, asked: Request) -> Any:
        found, _ = await self._everywhere("get_summary", asked)
        return answers.whole(found, await self.check())

    async def overview(self) -> sm.Overview | None:
        """Return what all readers of the feed are shown, made anew after OVERVIEW_S; None while no cell answers. While
        a slow cell is waited for, they are shown the one before, up to OLD_S: changes of other cells go on."""
        age_s = asyncio.get_running_loop().time() - self._overview_at
        if age_s >= OVERVIEW_S and self._making is None:
            self._making = asyncio.create_task(self._make_overview(), name="overview of all cells")
        if self._making is not None:
            known = self._overview is not None and age_s < OLD_S
            await asyncio.wait([self._making], timeout=NEXT_S if known else None)
        return self._overview

    async def _make_overview(self) -> None:
        try:
            self._overview = await self._new_overview()
        finally:
            self._overview_at, self._making = asyncio.get_running_loop().time(), None

    async def _new_overview(self) -> sm.Overview | None:
        served = self.served()
        asks = (each.promptly(each.replica.summaries.overview) for each in served)
        made = await asyncio.gather(*asks, return_exceptions=True)
        found = {each.name: one for each, one in zip(served, made, strict=True) if isinstance(one, sm.Overview)}
        if not found:
            return None
        return sm.Overview(
            answers.whole({name: one.summary for name, one in found.items()}, await self.check()),
            answers.replica_list([sm.ReplicaList(one.replicas) for one in found.values()]).replicas,
        )

    async def list_replicas(self, asked: Request) -> Any:
        found, without = await self._everywhere("list_replicas", asked)
        return answers.lacking(answers.replica_list([*found.values()]), without)

    async def list_cells(self, asked: Request) -> sm.CellList:
        return sm.CellList([*await asyncio.gather(*(self._row(each, asked) for each in self.cells))])

    async def _row(self, cell: ServedCell, asked: Request) -> sm.CellOut:
        """Return what is told of a cell; within ROW_S also of one that stands still, because a Worker waits for it."""
        try:
            async with asyncio.timeout(ROW_S):
                return await self._told(cell, asked)
        except TimeoutError:
            trouble = cell.trouble or f"it did not answer within {ROW_S:g} s"
        except StoreError as error:
            trouble = str(error)
        return shown_to(asked.caller, sm.CellOut(cell.name, False, trouble))

    async def _told(self, cell: ServedCell, asked: Request) -> sm.CellOut:
        checking = self._check(cell)
        await asyncio.wait([checking])  # Not the task itself: others wait for it, too.
        if trouble := checking.result():
            return shown_to(asked.caller, sm.CellOut(cell.name, False, trouble))
        found: Any = await cell.answer("list_cells", asked)
        row: sm.CellOut = found.cells[0]
        return row

    async def get_store(self, asked: Request) -> Any:
        cell = self.cells[0] if asked.query.cell is UNSET else self.named(asked.query.cell)
        return await cell.answer("get_store", asked)

    async def begin_term(self, asked: Request) -> Any:
        if asked.query.cell is UNSET:
            raise Problem("BAD_REQUEST", f"a term is one cell's: add cell=NAME, one of {', '.join(self.names)}")
        return await self.named(asked.query.cell).answer("begin_term", asked)

    _own: Mapping[str, Callable[..., Awaitable[Any]]] = {
        each.__name__: each
        for each in (
            *(create_live, show_publishing, say_blocked, list_lives, end_lives, list_workers, list_recoveries),
            *(list_audit, list_events, follow_changes, list_pools, get_pool, delete_pool, delete_digital_id),
            *(get_usage, get_rebalance, even_out_pool, ban_worker, get_summary, list_replicas, list_cells),
            *(get_store, begin_term, drain_worker),
        )
    }

    # -- raw routes

    def worker_link(self) -> web.RouteDef:
        return web.get(WORKER_LINK, self._serve_link, name="worker_link")

    async def _serve_link(self, request: web.Request) -> web.StreamResponse:
        try:
            cell = self.named(request.query.get("cell", ""))
            cell.refuse_unless_served()
        except (Problem, StoreError) as error:
            return problem_of(error).response()
        return await cell.replica.worker_links.serve(request)


def named(answer: Any, cell: ServedCell) -> Any:
    """Return the answer with the name of its cell, if it has a place for it."""
    return structs.replace(answer, cell=cell.name) if hasattr(answer, "cell") else answer
