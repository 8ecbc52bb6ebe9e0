"""The nodes of a virtual run: the product's own roles, started, killed and started again."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable, Coroutine, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from dhsched.dispatch.app import Replica, open_context
from dhsched.dispatch.cells.app import front_app, open_front
from dhsched.dispatch.loops import running
from dhsched.errors import DhschedError
from dhsched.infer.app import run_infer
from dhsched.infer.settings import InferSettings
from dhsched.settings import DispatchSettings
from dhsched.store.link.address import parse_address
from dhsched.web import serve_role
from dhsched.worker.main import Leaving, run_worker
from dhsched.worker.settings import WorkerSettings
from tests.virtual.keyed import RunKeys, make_keys
from tests.virtual.loop import Node, VirtualLoop
from tests.virtual.net import Net
from tests.virtual.runtime import Recorder
from tests.virtual.store import StoreServer
from tests.virtual.swarm import Swarm

STORE_HOST, APPLICATIONS_HOST = "127.0.0.3", "127.0.0.2"
CELL_HOSTS = "127.0.5."  # And a number: the stores of several cells.
DISPATCH_PORT, INFER_PORT, ROOM_PORT = 7400, 7401, 7402
LEAVE_MARGIN_S = 120.0  # It may be frozen for a while, and not reach anybody.
AGAIN_S = 1.0  # What supervises a process starts it again after this long.
DIGITAL_ID = "face"
FRAMES = 6  # Of a traceback, in a violation.


class Process:
    """One role that is started again whenever it ends. `main` makes its next boot."""

    def __init__(self, deployment: Deployment, name: str, host: str, main: Callable[[Process], Any]) -> None:
        self.name, self.host = name, host
        self.boots = 0
        self.cell = ""
        """The cell that an operator names to the next boot of a Worker, where there are several."""
        self.node: Node | None = None
        self.leaving = Leaving()
        self.leaves_by = float("inf")
        """When it has ended at the latest, after it was asked to."""
        self._deployment, self._main = deployment, main
        self._task: asyncio.Task[Any] | None = None
        self._down_until = 0.0

    async def supervise(self) -> None:
        """Start it, again and again."""
        loop = self._deployment.loop
        while True:
            if loop.now < self._down_until:
                await asyncio.sleep(self._down_until - loop.now)
            self.boots += 1
            self.leaving, self.leaves_by = Leaving(), float("inf")
            self.node = Node(loop, f"{self.name}.{self.boots}", self.host)
            self._task = self.node.spawn(self._main(self), "main")
            self._deployment.note(f"start {self.node.name}")
            await asyncio.wait((self._task,))
            self._ended(self._task, self.node)
            await asyncio.sleep(AGAIN_S)

    def _ended(self, task: asyncio.Task[Any], node: Node) -> None:
        error = None if task.cancelled() else task.exception()
        self._deployment.note(f"end {node.name} {type(error).__name__}")
        if not node.dead:
            if error is not None and not isinstance(error, DhschedError | OSError):
                self._deployment.wrong(f"process: {node.name} ended with {error!r} at {frames_of(error)}")
            self._cut_off(node)

    def leave(self) -> None:
        """SIGTERM: a Worker drains, stops its runtimes, and ends."""
        if not self.leaving.requested.is_set():
            swarm = self._deployment.swarm
            self.leaves_by = self._deployment.loop.now + swarm.drain_s + swarm.teardown_s + LEAVE_MARGIN_S
        self.leaving.requested.set()

    def look(self) -> None:
        """Find a process that does not end. This is called every few seconds."""
        if self._deployment.loop.now > self.leaves_by:
            self._deployment.wrong(f"waits: {self.name} was asked to end, and is still there")
            self.leaves_by = float("inf")

    def kill(self, down_s: float) -> None:
        """kill -9: nothing is said to anybody but by the kernel. It is started again after `down_s`."""
        self._down_until = self._deployment.loop.now + down_s
        if self.node is not None and not self.node.dead:
            self._cut_off(self.node)

    def _cut_off(self, node: Node) -> None:
        self._deployment.net.kill(node)
        if self in (*self._deployment.replicas, *self._deployment.controllers):
            self._deployment.ends.append(self._deployment.loop.now)
        node.kill()
        self._deployment.recorder.died(node.name)


class Deployment:
    """The stores, the replicas, the controllers and the Workers of one seed."""

    def __init__(
        self,
        loop: VirtualLoop,
        net: Net,
        swarm: Swarm,
        stores: Sequence[StoreServer],
        recorder: Recorder,
        folder: Path,
        note: Callable[[str], None],
        wrong: Callable[[str], None],
    ) -> None:
        self.loop, self.net, self.swarm, self.stores, self.recorder = loop, net, swarm, stores, recorder
        self.note, self.wrong = note, wrong
        self.keys = make_keys(stores[0]) if swarm.keys else RunKeys()
        self._folder = folder
        self.replicas = [Process(self, f"d{n}", f"127.0.1.{n}", self._replica) for n in _count(swarm.replicas)]
        self.controllers = [Process(self, f"i{n}", f"127.0.2.{n}", self._infer) for n in _count(swarm.controllers)]
        self.workers = [Process(self, f"w{n}", f"127.0.3.{n}", self._worker) for n in _count(swarm.workers)]
        self.rooms = [Process(self, f"r{n}", f"127.0.4.{n}", self._room) for n in _count(swarm.rooms)]
        self.pool_of = {
            f"w{n}": f"pool{pool}"
            for n, pool in zip(
                _count(swarm.workers), (p for p, size in enumerate(swarm.pools, 1) for _ in range(size)), strict=True
            )
        }
        self._supervisors: list[asyncio.Task[None]] = []
        self.ends: list[float] = []
        """When a replica or a controller ended, with what it was told and had not said yet."""
        self.on_registered: Callable[[str, float], None] | None = None
        """Is called with the name of a Worker that has registered, and when it began to."""

    @property
    def processes(self) -> list[Process]:
        return [*self.replicas, *self.controllers, *self.workers, *self.rooms]

    @property
    def store(self) -> StoreServer:
        """The only store; with several cells, that of the first."""
        return self.stores[0]

    @property
    def cells(self) -> str:
        """The setting `cells` of every replica and controller; empty where there is only one."""
        return " ".join(f"{each.cell}={each.url}" for each in self.stores) if len(self.stores) > 1 else ""

    @property
    def dispatch(self) -> tuple[str, ...]:
        return tuple(f"http://{each.host}:{DISPATCH_PORT}" for each in self.replicas)

    @property
    def infer(self) -> tuple[str, ...]:
        return tuple(f"http://{each.host}:{INFER_PORT}" for each in self.controllers)

    def start(self) -> None:
        self._supervisors = [asyncio.create_task(each.supervise(), name=each.name) for each in self.processes]

    async def stop(self) -> None:
        for task in self._supervisors:
            task.cancel()
        await asyncio.gather(*self._supervisors, return_exceptions=True)
        for process in self.processes:
            process.kill(0.0)

    # -- what each role runs

    def _replica(self, process: Process) -> Coroutine[Any, Any, None]:
        settings = DispatchSettings(
            host=process.host,
            port=DISPATCH_PORT,
            cells=self.cells,
            access=self.keys.access,
            worker_ttl_s=self.swarm.worker_ttl_s,
            cut_over_s=self.swarm.cut_over_s,
            recover_s=self.swarm.recover_s,
            refresh_max_s=self.swarm.refresh_max_s,
        )

        async def over_cells() -> None:
            async with open_front(settings, limits=self.swarm.limits) as front:
                await serve_role(settings, front_app(front, settings), stop=process.leaving.requested, say=None)

        async def main() -> None:
            async with open_context(parse_address(self.store.url), settings, limits=self.swarm.limits) as context:
                replica = Replica(context)
                async with running(replica.loops(), rng=context.rng):
                    await serve_role(settings, replica.app(), stop=process.leaving.requested, say=None)

        return over_cells() if self.cells else main()

    def _infer(self, process: Process) -> Coroutine[Any, Any, None]:
        settings = InferSettings(
            store=self.store.url,
            host=process.host,
            port=INFER_PORT,
            cells=self.cells,
            access=self.keys.access,
            credit=self.swarm.credit,
            room=self.room_url,
        )
        return run_infer(settings, process.leaving.requested, limits=self.swarm.limits)

    @property
    def room_url(self) -> str:
        return f"http://{self.rooms[0].host}:{ROOM_PORT}" if self.rooms else ""

    def _room(self, process: Process) -> Coroutine[Any, Any, None]:
        from dhsched.room.app import run_room  # Most seeds have no room, and aiortc takes a second to import.
        from dhsched.room.settings import RoomSettings

        settings = RoomSettings(
            host=process.host,
            port=ROOM_PORT,
            access=self.keys.access,
            key=self.keys.room,
            dispatch=",".join(self.dispatch),
            infer=",".join(self.infer),
            name=process.name,
            metrics_port=0,
        )
        return run_room(settings, process.leaving.requested)

    def _worker(self, process: Process) -> Coroutine[Any, Any, None]:
        self._unlock(process.name)
        settings = WorkerSettings(
            pool=self.pool_of[process.name],
            capacity=self.swarm.capacity,
            name=process.name,
            device=process.name,
            dispatch=self.dispatch,
            key=self.keys.worker,
            cell=process.cell,
            lock_folder=self._folder,
            drain_s=self.swarm.drain_s,
            teardown_s=self.swarm.teardown_s,
        )
        registered, process.cell = self._registered(process), ""
        return run_worker(settings, self.recorder, process.leaving, on_registered=registered, watched=True)

    def _registered(self, process: Process) -> Callable[[str], None] | None:
        """Return what a Worker calls when it has registered. One that was sent to a cell may have to wait for that."""
        if self.on_registered is None or process.cell:
            return None
        tell, began, boots = self.on_registered, self.loop.now, count(1)

        def registered(worker: str) -> None:
            if next(boots) == 1:  # When a later boot of the process began is not known.
                tell(worker, began)

        return registered

    def _unlock(self, device: str) -> None:
        """The kernel gives up the lock of a process that was killed; what is left of it here must not keep it."""
        lock = self._folder / f"{device}.lock"
        if lock.exists():
            kept = lock.read_bytes()
            lock.unlink()
            lock.touch(mode=0o600)
            lock.write_bytes(kept)


def frames_of(error: BaseException) -> str:
    """Return where an error was raised, the innermost frame first."""
    frames = reversed(traceback.extract_tb(error.__traceback__)[-FRAMES:])
    return " < ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames)


def _count(size: int) -> range:
    return range(1, size + 1)
