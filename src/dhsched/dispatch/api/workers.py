"""Workers over HTTP: list, get, cordon and uncordon."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Literal

from dhsched.blame_limits import count_troubles
from dhsched.client.models import workers as m
from dhsched.client.models.base import UNSET
from dhsched.dispatch.api import parameters as p
from dhsched.dispatch.api.part import Part
from dhsched.dispatch.commit import retry_unknown
from dhsched.dispatch.devices import devices_out
from dhsched.dispatch.recovery.blame import forgive, limits_of
from dhsched.ownership import outcomes as o
from dhsched.store.records.fleet import WorkerState
from dhsched.store.records.lives import LiveRow
from dhsched.store.records.workers import DeviceRow
from dhsched.types import Mode, check_worker, split_tag
from dhsched.web import Endpoint, NoBody, Problem, Request

SLOTS_MAX = 2_000  # Lives of one Worker that are described; slots beyond these have only their state.

Verb = Literal["cordon", "uncordon"]


class Workers(Part):
    """The endpoints of Workers, of one replica."""

    def endpoints(self) -> list[Endpoint]:
        verbs: list[tuple[Verb, Mode, str]] = [
            ("cordon", "cordoned", "Place no new lives on this Worker; its present lives stay."),
            ("uncordon", "ready", "Place new lives on this Worker again."),
        ]
        return [
            Endpoint(
                name="list_workers",
                method="GET",
                path="/v1/workers",
                handler=self.list,
                summary="Workers by id, a page at a time.",
                tag="workers",
                query=p.WorkersQuery,
                replies={200: m.WorkerList},
            ),
            Endpoint(
                name="get_worker",
                method="GET",
                path="/v1/workers/{worker}",
                handler=self.get,
                summary="One Worker and its slots.",
                tag="workers",
                path_type=p.WorkerPath,
                replies={200: m.WorkerOut},
                problems=["NOT_FOUND"],
            ),
            *(
                Endpoint(
                    name=f"{verb}_worker",
                    method="POST",
                    path=f"/v1/workers/{{worker}}/{verb}",
                    handler=partial(self.set_mode, verb=verb, wanted=wanted),
                    summary=summary,
                    tag="workers",
                    path_type=p.WorkerPath,
                    body=NoBody,
                    replies={200: m.WorkerMode},
                    problems=["NOT_FOUND", "DRAINING"],
                )
                for verb, wanted, summary in verbs
            ),
        ]

    async def list(self, asked: Request) -> m.WorkerList:
        """Return a page of Workers, read from the store and not from the view: an operator needs the present state."""
        query: p.WorkersQuery = asked.query
        after = "" if query.after is UNSET else check_worker(query.after)
        rows = sorted((await self.context.records.fleet.snapshot()).workers)
        wanted = [row for row in rows if row.worker > after]
        if query.pool is not UNSET:
            wanted = [row for row in wanted if row.pool == query.pool]
        if query.status is not UNSET:
            wanted = [row for row in wanted if row.status == query.status]
        page = wanted[: query.limit]
        devices = await asyncio.gather(*(self.context.records.workers.devices(row.worker) for row in page))
        shown = [worker_summary(row, some) for row, some in zip(page, devices, strict=True)]
        return m.WorkerList(shown, page[-1].worker if len(wanted) > len(page) else None)

    async def get(self, asked: Request) -> m.WorkerOut:
        worker = check_worker(asked.path.worker)
        found = await self.context.records.workers.get(worker)
        if found is None:
            raise no_worker(worker)
        record, table = found
        workers, window_s = self.context.records.workers, self.context.settings.blame_window_s
        devices, rows, boots, members, at_ms, replicas = await asyncio.gather(
            workers.devices(worker),
            self._rows(table),
            workers.boots(record.name),
            workers.troubles(record.name, int(1000 * window_s)),
            self.context.records.server.now_ms(),
            self.context.records.replicas.all(),
        )
        linked = (each.report for each in replicas if (each.report.role, each.report.name) == ("dispatch", record.link))
        slots = [slot_out(tag, state, rows.get(split_tag(tag)[0])) for tag, state in sorted(table.items())]
        return m.WorkerOut(
            worker=worker,
            name=record.name,
            pool=record.pool,
            status=record.status,
            mode=record.mode,
            load=record.load,
            capacity=record.capacity,
            starting=record.starting,
            cutovers=record.cutovers,
            labels=record.labels,
            beat=record.beat,
            link=record.link,
            slots=slots,
            devices=devices_out(devices),
            boots=boots,
            troubles=[m.TroubleOut(*each) for each in count_troubles(members, limits_of(self.context.settings))],
            blame_window_s=window_s,
            at_ms=at_ms,
            loop_lag_ms=next((each.lag_of(worker) for each in linked), None),
        )

    async def _rows(self, table: Mapping[str, str]) -> dict[str, LiveRow]:
        """Return the rows of the first SLOTS_MAX lives of a slot table."""
        lives = sorted({split_tag(tag)[0] for tag in table})[:SLOTS_MAX]
        return {row.live: row for row in await self.context.records.lives.rows(lives)}

    async def set_mode(self, asked: Request, *, verb: Verb, wanted: Mode) -> m.WorkerMode:
        """Cordon or uncordon a Worker, and write an event if that changes its mode."""
        worker = check_worker(asked.path.worker)
        found = await self.context.records.workers.get(worker)
        was = found[0].mode if found is not None else ""
        outcome = await retry_unknown(
            self.context,
            "set_worker",
            lambda: self.context.store.set_worker(worker=worker, verb=verb),
        )
        if not isinstance(outcome, o.WorkerSet):
            raise no_worker(worker)
        if outcome.mode == wanted and was != wanted:
            by = f"request {asked.request_id}"
            if verb == "cordon":
                self.context.events.say(
                    "worker_cordoned", worker=worker, cordoned_by=by, reason="an operator asked for it"
                )
            else:
                self.context.events.say("worker_uncordoned", worker=worker, uncordoned_by=by)
        if verb == "uncordon":
            await forgive(self.context, worker)
        if outcome.mode != wanted:
            detail = f"Worker {worker} is draining; cancel the drain before you {verb} it"
            raise Problem("DRAINING", detail, worker=worker, mode=outcome.mode)
        return m.WorkerMode(worker, outcome.mode)


def worker_summary(row: WorkerState, devices: list[DeviceRow]) -> m.WorkerSummary:
    return m.WorkerSummary(
        worker=row.worker,
        pool=row.pool,
        status=row.status,
        load=row.load,
        capacity=row.capacity,
        starting=row.starting,
        labels=row.labels,
        beat=row.beat,
        devices=devices_out(devices),
    )


def slot_out(tag: str, state: str, row: LiveRow | None = None) -> m.SlotOut:
    live, number = split_tag(tag)
    tenant, _, live_id = live.partition("/")
    if row is None or row.epoch != number:
        return m.SlotOut(live_id, tenant, number, state)
    return m.SlotOut(
        *(live_id, tenant, number, state, row.digital_id),
        committed_at_ms=row.committed_at,
        acked=row.acked,
        pending=row.pending,
        stalled=row.stalled,
    )


def no_worker(worker: str) -> Problem:
    return Problem("NOT_FOUND", f"Worker {worker} does not exist, or is gone; list the Workers", worker=worker)
