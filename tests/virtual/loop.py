"""The event loop of a virtual run: its clock jumps to the next timer when nothing is ready; its turns belong to nodes.

Every callback belongs to the node in whose context it was scheduled. A frozen node's callbacks wait in its own queue
until it is thawed, which is what SIGSTOP does to a process; those of a buried node never run.
"""

from __future__ import annotations

import asyncio
import heapq
from asyncio import events
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from itertools import count
from typing import Any, TypeVar, TypeVarTuple, Unpack

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
NODE: ContextVar[Node | None] = ContextVar("node", default=None)
NUMBERS = count(1)  # Of tasks and futures that are hashed. A process has one run.
GHOST_S = 30.0  # What a killed node's tasks have not finished in this time, cut off from everybody, never runs.
CANCELLED_KEPT = 1_000  # Cancelled timers are forgotten when they are more than this, and more than half of all.
TASKS_KEPT = 256  # Finished tasks of a node are forgotten when it has this many more than before.


class Node:
    """What would be a process on a machine of its own."""

    def __init__(self, loop: VirtualLoop, name: str, host: str) -> None:
        self.name, self.host = name, host
        self.frozen = False
        self.dead = False
        """Killed: cut off, and its tasks are cancelled."""
        self.buried = False
        self._loop = loop
        self._waiting: list[events.Handle] = []
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._forget_at = TASKS_KEPT
        context = copy_context()
        context.run(NODE.set, self)
        self._context = context

    def context(self) -> Context:
        return self._context.copy()

    def spawn(self, coroutine: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Run a coroutine on this node."""
        return self._loop.create_task(coroutine, name=f"{self.name}: {name}", context=self.context())

    def own(self, task: asyncio.Task[Any]) -> None:
        if len(self._tasks) >= self._forget_at:
            self._tasks = {each: None for each in self._tasks if not each.done()}
            self._forget_at = len(self._tasks) + TASKS_KEPT
        self._tasks[task] = None

    def keeps(self, handle: events.Handle) -> bool:
        """Return whether a callback must not run now; a frozen node's runs later."""
        if self.frozen:
            self._waiting.append(handle)
            return True
        return self.buried

    def freeze(self) -> None:
        self.frozen = True

    def thaw(self) -> None:
        self.frozen = False
        waiting, self._waiting = self._waiting, []
        self._loop.go_on(waiting)

    def kill(self) -> None:
        """Cancel everything here, as a ghost that nobody hears; bury what is left of it after GHOST_S."""
        self.dead = True
        if self.frozen:
            self.thaw()
        for task in [*self._tasks]:
            task.cancel()
        self._loop.call_later(GHOST_S, self._bury)

    def _bury(self) -> None:
        self.buried = True
        self._tasks.clear()


class OwnedHandle(events.Handle):
    """A callback, and the node whose turn it needs. Made without the debugging aids of asyncio: there are many."""

    __slots__ = ("node",)

    def __init__(self, callback: Any, args: Any, loop: VirtualLoop, context: Context | None) -> None:
        self._context = copy_context() if context is None else context
        self.node = self._context.get(NODE)
        self._loop, self._callback, self._args = loop, callback, args
        self._cancelled, self._repr, self._source_traceback = False, None, None

    def cancel(self) -> None:
        self._cancelled, self._callback, self._args = True, None, ()


class OwnedTimer(events.TimerHandle):
    """The same, at its time."""

    __slots__ = ("node",)

    def __init__(self, when: float, callback: Any, args: Any, loop: VirtualLoop, context: Context | None) -> None:
        self._context = copy_context() if context is None else context
        self.node = self._context.get(NODE)
        self._loop, self._callback, self._args = loop, callback, args
        self._cancelled, self._repr, self._source_traceback = False, None, None
        self._when, self._scheduled = when, True

    def cancel(self) -> None:
        if not self._cancelled:
            self._cancelled, self._callback, self._args = True, None, ()
            if self._scheduled:
                self._loop._timer_handle_cancelled(self)


class NumberedTask(asyncio.Task[Any]):
    """A task whose hash is a number, given to it when it is first asked for: sets of tasks have the same order in every
    process."""

    node: Node | None = None
    _number = 0

    def __hash__(self) -> int:
        self._number = self._number or next(NUMBERS)
        return self._number


class NumberedFuture(asyncio.Future[Any]):
    """The same for futures."""

    _number = 0

    def __hash__(self) -> int:
        self._number = self._number or next(NUMBERS)
        return self._number


class VirtualLoop(asyncio.BaseEventLoop):
    """See the module. It has no file descriptors and no threads; `connect` and `listen` are of the net."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.net: Any = None
        self._made = 0
        self._timers: list[tuple[float, int, OwnedTimer]] = []
        self._cancelled = 0
        self.set_task_factory(self._new_task)

    def time(self) -> float:
        return self.now

    def _run_once(self) -> None:
        """One tick: where nothing is ready, it is the time of the next timer at once. Timers of one time run in the
        order in which they were made."""
        ready, timers = self._ready, self._timers  # type: ignore[attr-defined]
        if not ready and not self._stopping:  # type: ignore[attr-defined]
            while timers and timers[0][2]._cancelled:
                heapq.heappop(timers)
            if not timers:
                raise RuntimeError("nothing is left to do in this run: a wait without an end")
            self.now = max(self.now, timers[0][0])
        while timers and timers[0][0] <= self.now:
            timer = heapq.heappop(timers)[2]
            timer._scheduled = False
            ready.append(timer)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle._cancelled:
                continue
            node = handle.node
            if node is None or not (node.frozen or node.buried) or not node.keeps(handle):
                try:
                    handle._context.run(handle._callback, *handle._args)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:
                    name = getattr(handle._callback, "__qualname__", type(handle._callback).__name__)
                    self.call_exception_handler({"message": f"{name} failed", "exception": error, "handle": handle})

    def _timer_handle_cancelled(self, handle: Any) -> None:
        """Forget cancelled timers when they are most of all."""
        self._cancelled += 1
        if self._cancelled > CANCELLED_KEPT and 2 * self._cancelled > len(self._timers):
            self._timers = [row for row in self._timers if not row[2]._cancelled]
            heapq.heapify(self._timers)
            self._cancelled = 0

    def go_on(self, handles: list[events.Handle]) -> None:
        self._ready.extend(handles)  # type: ignore[attr-defined]

    def create_future(self) -> asyncio.Future[Any]:
        return NumberedFuture(loop=self)

    def _new_task(self, loop: Any, coroutine: Any, context: Context | None = None) -> asyncio.Task[Any]:
        task = NumberedTask(coroutine, loop=self, context=context)
        node = NODE.get() if context is None else context.get(NODE)
        if node is not None:
            task.node = node
            node.own(task)
        return task

    def call_soon(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        handle = OwnedHandle(callback, args, self, context)
        self._ready.append(handle)  # type: ignore[attr-defined]
        return handle

    call_soon_threadsafe = call_soon  # There are no threads.

    def call_later(
        self, delay: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        timer = OwnedTimer(self.now + delay, callback, args, self, context)
        self._made += 1
        heapq.heappush(self._timers, (timer._when, self._made, timer))
        return timer

    def call_at(
        self, when: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        timer = OwnedTimer(when, callback, args, self, context)
        self._made += 1
        heapq.heappush(self._timers, (when, self._made, timer))
        return timer

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **given: Any) -> Any:
        if (sock := given.get("sock")) is not None:
            host, port = sock.address
        assert not given.get("ssl"), "a virtual run has no TLS"
        return await self.net.connect(NODE.get(), protocol_factory, str(host), int(port))

    async def create_server(self, protocol_factory: Any, host: Any = None, port: Any = None, **given: Any) -> Any:
        node = NODE.get()
        assert node is not None and not given.get("ssl") and given.get("sock") is None
        return self.net.listen(node, protocol_factory, str(host), int(port))

    def run_in_executor(self, executor: Any, func: Callable[[Unpack[Ts]], T], *args: *Ts) -> Any:
        raise RuntimeError(f"a virtual run has no threads, and {func} wants one")

    def _process_events(self, event_list: Any) -> None:
        pass

    def _write_to_self(self) -> None:
        pass
