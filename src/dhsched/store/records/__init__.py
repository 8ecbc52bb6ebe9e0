"""Named reads and writes beside the steps: nobody outside `store/` spells a command.

    records = await Records.open(address, cell="main")      a link of its own, so that lists never hold up steps
    await records.workers.beats()                           each query and write is in the part it is about
    await records.lives.before_recovery(live, worker)

Nothing here decides anything: ownership changes by steps only (`store/steps`). A query that needs several commands may
see a step fall between them; its docstring says what follows from that.

| part | contents |
|---|---|
| lives | records, lists and names of lives; their dead letters |
| recovering | lives that need a new generation or wait for a free slot |
| workers | records, slot tables and beats of Workers; troubles of their names |
| fleet | the snapshot that the fleet view is made from; queues, turns, the mark of the brake |
| drains | requests to drain, and which of their events were written |
| controllers | URLs of the Infer-Controllers |
| replicas | what each Dispatch replica and Infer-Controller tells of itself |
| events | the log of fleet events |
| audit | who has asked for which change |
| logs | the last log lines of each live's runtimes |
| cells | the list of the deployment's cells |
| config | Pools, DigitalIDs and limits of tenants; copies of them, and of keys, for other cells |
| tenants | what the replicas count of each tenant, and its usage |
| server | the server itself: time, memory, whether it answers |
"""

from __future__ import annotations

from typing import Self

from dhsched.store.keys import Keys
from dhsched.store.link.address import Address
from dhsched.store.link.link import Link, LinkSettings
from dhsched.store.records.audit import AuditRecords
from dhsched.store.records.cells import CellRecords
from dhsched.store.records.config import ConfigRecords
from dhsched.store.records.controllers import ControllerRecords
from dhsched.store.records.drains import DrainRecords
from dhsched.store.records.events import EventRecords
from dhsched.store.records.fleet import FleetRecords
from dhsched.store.records.lives import LiveRecords
from dhsched.store.records.logs import LogRecords
from dhsched.store.records.recovering import RecoveringRecords
from dhsched.store.records.replicas import ReplicaRecords
from dhsched.store.records.server import ServerRecords
from dhsched.store.records.tenants import TenantRecords
from dhsched.store.records.workers import WorkerRecords
from dhsched.store.steps.scripts import READ_ONLY, scripts_around

BIG_READS = LinkSettings(deadline_s=5.0, client_name="dhsched-reads")


class Records:
    """The records of one cell, over one link."""

    def __init__(self, link: Link, cell: str) -> None:
        self.link = link
        self.keys = Keys(cell)
        self.lives = LiveRecords(link, self.keys)
        self.recovering = RecoveringRecords(link, self.keys)
        self.workers = WorkerRecords(link, self.keys)
        self.fleet = FleetRecords(link, self.keys)
        self.drains = DrainRecords(link, self.keys)
        self.controllers = ControllerRecords(link, self.keys)
        self.replicas = ReplicaRecords(link, self.keys)
        self.events = EventRecords(link, self.keys)
        self.audit = AuditRecords(link, self.keys)
        self.logs = LogRecords(link, self.keys)
        self.cells = CellRecords(link, self.keys)
        self.config = ConfigRecords(link, self.keys)
        self.tenants = TenantRecords(link, self.keys)
        self.server = ServerRecords(link)

    @classmethod
    async def open(cls, address: Address, *, cell: str = "main", settings: LinkSettings = BIG_READS) -> Self:
        """Connect with a link of its own, which only reads: it enters no home, and runs no script that writes."""
        scripts = {name: script.source for name, script in scripts_around().items() if name in READ_ONLY}
        return cls(await Link.open(address, scripts=scripts, settings=settings, slot_key=Keys(cell).cell), cell)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self.link.close()
