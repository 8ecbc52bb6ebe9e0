"""The Worker's link to Dispatch: registers, reports every second, receives the slot table.

Any replica will do. Replicas answer reports, so the Worker leaves a replica that is silent for a second; a stopping
replica says Goodbye first. A boot that has its WorkerID resumes with its token and never registers twice: only GONE
ends the boot, and then everything it ran must be stopped before the next boot (`Boot`).
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Protocol

import aiohttp
import msgspec
import structlog

from dhsched.access.api_keys import id_of
from dhsched.access.key_file import KeyFile
from dhsched.cells.workers import Registration, Slots, choose_cell, replaced
from dhsched.client.calls import bearer, words
from dhsched.client.credentials import own_key
from dhsched.client.http import NO_ANSWER, Replicas, open_socket, read_reply
from dhsched.client.models.summary import CellList, CellOut
from dhsched.errors import BadValue, DhschedError, KeyRefused
from dhsched.links.messages import (
    FRAME_BYTES_MAX,
    HEARTBEAT_S,
    REPORT_S,
    SILENCE_MAX_S,
    Depart,
    Departed,
    Device,
    DeviceList,
    Drain,
    Exit,
    FromDispatch,
    Gone,
    Goodbye,
    GoTo,
    Problem,
    Register,
    Registered,
    Report,
    Reported,
    Resume,
    Wake,
    read_from_dispatch,
)
from dhsched.links.outbox import Outbox
from dhsched.tasks import cancel
from dhsched.types import Mode, SlotState
from dhsched.worker.pull_dial import in_cell

log = structlog.get_logger(__name__)

LINK_PATH = "/v1/workers/link"
LAST_CELL_S = 60.0  # A machine whose last cell is not ready for this long registers in another one.
CONNECT_S = 2.0  # A replica that does not accept the link for this long is left for the next.
DRAIN_MAX_S = 86_400.0  # A longer deadline is sent as this.
BACKOFF_S = 0.2  # Wait before the next replica; doubled after each round of replicas, up to:
BACKOFF_MAX_S = 2.0
UNAUTHORIZED = "UNAUTHORIZED"
NEVER = frozenset({"FORBIDDEN", "BAD_REQUEST"})
"""Codes of a refused registration that is not worth repeating."""
REFUSED_MAX_S = 5.0  # A Worker that every replica refuses for this long exits. Replicas know a new key by then.
ANSWER_GAP_MAX_S = 2 * REPORT_S  # After a longer gap between two answers, reports count as unanswered.
LAGS_KEPT = 60  # Of this many seconds the worst lag of the event loop is reported.


class Reporter(Protocol):
    """The agent, as the link sees it: makes each report and takes the table of the answer (agent.py)."""

    def report(self) -> Report:
        """Return the next report."""

    def take_table(self, *, home: str, term: int, rev: int, table: Mapping[str, SlotState | None], base: int) -> None:
        """Take the slot table of an answer, or its changes since `base`, and act on it soon."""

    def act_soon(self) -> None:
        """Compare runtimes and slot table again: time has passed."""


@dataclass(slots=True)
class Boot:
    """One boot: its registration, and the WorkerID and token that it got.

    `cell` is where it registers: None until that is chosen, empty where there is only one. `last` is the machine's boot
    before, `wanted_cell` the cell that an operator has named.
    """

    register: Register
    worker: str = ""
    token: str = ""
    cell: str | None = None
    chosen: bool = False  # Whether the cell may be chosen anew: no registration was sent there.
    last: Registration | None = None
    wanted_cell: str = ""
    waiting_since: float = 0.0
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    exited: asyncio.Event = field(default_factory=asyncio.Event)

    def choose(self, cells: Sequence[CellOut]) -> None:
        """Choose the cell, of those that Dispatch names, for the whole boot. Raise BadValue if no cell can be chosen
        now."""
        slots = {each.name: Slots(each.free, each.capacity) for each in cells if each.ready}
        names = [each.name for each in cells]
        if self.wanted_cell and self.wanted_cell not in names:
            raise BadValue(
                f"cell {self.wanted_cell} does not exist; there are {', '.join(names) or 'no cells to name'}"
            )
        if len(cells) <= 1:
            self.cell = ""
        elif not slots and not self.wanted_cell:
            raise BadValue("no cell of the deployment is ready")
        else:
            if not self.wanted_cell and self.last is not None and self.last.cell in set(names) - slots.keys():
                self._wait_for(self.last.cell)
            self.cell = choose_cell(self.last, slots, named=self.wanted_cell, name=self.register.name)
        self.register.replaces = replaced(self.last, self.cell)
        self.chosen = True

    def _wait_for(self, cell: str) -> None:
        """Raise BadValue while the machine's last cell may be back soon: a failover moves no Worker to another cell."""
        self.waiting_since = self.waiting_since or time.monotonic()
        if time.monotonic() - self.waiting_since < LAST_CELL_S:
            raise BadValue(
                f"cell {cell}, where this machine was, is not ready; after {LAST_CELL_S:g} s another is chosen"
            )
        log.warning("the machine's last cell is not ready: registering in another one", cell=cell)


class DispatchLink:
    """Keep one connection to one of `urls`. `run` ends when the boot is gone or has exited.

    `on_registered` is called with a WorkerID and its token, and with each new token; `on_controllers` with the URLs of
    the Infer-Controllers, whenever they change. `devices` returns what is told of the devices on each new connection.
    """

    def __init__(
        self,
        http: aiohttp.ClientSession,
        urls: Sequence[str],
        boot: Boot,
        agent: Reporter,
        *,
        on_registered: Callable[[str, str], None],
        on_controllers: Callable[[Sequence[str]], None],
        key: str = "",
        devices: Callable[[], list[Device]] | None = None,
    ) -> None:
        self.mode: Mode = "ready"  # As of the last answer.
        self.goes_to = ""  # The cell to register in once nothing runs here; empty: none.
        self.going = asyncio.Event()  # Whether there is one, and Dispatch has confirmed that this Worker drains.
        self._go_after = 0  # Answers to reports until then: one that was under way may be older.
        self._replicas = Replicas("Dispatch", urls, http, own_key(key, "worker"))
        self._boot = boot
        self._agent = agent
        self._on_registered = on_registered
        self._on_controllers = on_controllers
        self._devices = devices
        self._devices_changed = False
        self._outbox: Outbox | None = None
        self._asked_at: float | None = None  # When the unanswered report was sent; None if there is none.
        self._again = False  # Whether another report was requested meanwhile.
        self._drain_by: float | None = None  # Deadline of the requested drain, infinity without one; None: no drain.
        self._exit = False
        self._heard_at = asyncio.get_running_loop().time()
        self._lags = deque([0.0], maxlen=LAGS_KEPT)  # How late the event loop was, measured once a second.
        self._answered_since: float | None = None
        self._refused_since: float | None = None
        self._refusal = ""

    # -- for the agent

    def depart(self, live: str, number: int, reason: str = "") -> None:
        if self._outbox is not None:
            self._outbox.put(Depart(live, number, reason))

    def tell_devices(self) -> None:
        """Send what is to be said of this Worker's devices with the next report, if they have names."""
        self._devices_changed = self._devices is not None
        if self._devices_changed:
            self.report_soon()

    def drain(self, deadline_s: float = 0.0) -> None:
        """Request a drain of this Worker, now and on every new connection; `deadline_s` 0 means no deadline."""
        self._drain_by = asyncio.get_running_loop().time() + (deadline_s or float("inf"))
        if self._outbox is not None and self._boot.worker:
            self._ask_for_drain(self._outbox, self._drain_by)

    @property
    def urls(self) -> tuple[str, ...]:
        """Return the replicas, the linked one first."""
        return self._replicas.order()

    @property
    def silent_s(self) -> float:
        """Return how long no replica has answered a report."""
        return asyncio.get_running_loop().time() - self._heard_at

    @property
    def answered_s(self) -> float:
        """Return for how long every report has been answered, hence for how long Dispatch has reached the store."""
        if self._answered_since is None or self.silent_s > ANSWER_GAP_MAX_S:
            return 0.0
        return asyncio.get_running_loop().time() - self._answered_since

    def exit(self) -> None:
        """Tell Dispatch that every runtime has ended. `boot.exited` is set once the store has recorded the exit."""
        self._exit = True
        if self._outbox is not None:
            self._outbox.put(Exit())

    def report_soon(self) -> None:
        """Send a report now, or after the answer to the one in flight; several requests share that next report."""
        if self._outbox is None or not self._boot.worker:
            return
        if self._asked_at is not None:
            self._again = True
            return
        self._asked_at = asyncio.get_running_loop().time()
        if self._devices is not None and self._devices_changed:
            self._devices_changed = False
            self._outbox.put(DeviceList(self._devices()))
        report = self._agent.report()
        report.lag_ms = int(1000 * max(self._lags))
        self._outbox.put(report)

    # -- the connection

    async def run(self) -> None:
        boot = self._boot
        for attempt in count():
            url = self._replicas.url
            served = await self._connect(url)
            if boot.gone.is_set() or boot.exited.is_set():
                return
            self._give_up_if_refused(served=served)
            self._replicas.leave(url)
            rounds = attempt // len(self._replicas.urls)
            await asyncio.sleep(0 if served else min(BACKOFF_S * 2 ** min(rounds, 8), BACKOFF_MAX_S))

    async def _connect(self, url: str) -> bool:
        """Serve one connection from its beginning to its end; return whether the replica served this Worker at all."""
        served = False
        try:
            async with asyncio.timeout(CONNECT_S):
                # A registered boot shows its own token; before that, the API key mints one.
                headers = bearer(self._boot.token) if self._boot.token else await self._replicas.access(url)
                if self._boot.cell is None:
                    self._boot.choose(await self._cells(url, headers))
                socket = await open_socket(
                    self._replicas.http,
                    url + in_cell(LINK_PATH, self._boot.cell or ""),
                    heartbeat=HEARTBEAT_S,
                    max_msg_size=FRAME_BYTES_MAX,
                    headers=headers,
                )
        except aiohttp.WSServerHandshakeError as error:
            if self._boot.chosen:
                self._boot.cell = None  # Nothing was registered there: it may have gone away since.
            self._handshake_refused(url, error.status)
            return False
        except KeyRefused as error:
            self._refused(str(error))
            return False
        except (*NO_ANSWER, DhschedError) as error:
            log.warning("no link to Dispatch", replica=url, reason=words(error))
            return False
        outbox = self._outbox = Outbox(socket.send_bytes)
        self._asked_at, self._again = None, False
        self._greet(outbox)
        sending = asyncio.create_task(outbox.run())
        reporting = asyncio.create_task(self._report_every_second(socket))
        try:
            async for message in socket:
                if message.type is not aiohttp.WSMsgType.BINARY:
                    break
                for said in read_from_dispatch(message.data):
                    served = self._hear(said) or served
                    if isinstance(said, Gone | Goodbye) or self._boot.gone.is_set():
                        return served
        except (aiohttp.ClientError, OSError) as error:
            # A process that was frozen wakes to a ping on a closed connection, and its pong cannot be sent.
            log.warning("the link to Dispatch broke", replica=url, reason=str(error) or type(error).__name__)
        except BadValue as error:
            log.error("Dispatch sent a message that cannot be read", replica=url, reason=str(error))
        finally:
            self._outbox = None
            await cancel(sending, reporting)
            await socket.close()
        return served

    async def _cells(self, url: str, headers: Mapping[str, str]) -> list[CellOut]:
        """Return the cells of the deployment; none from a Dispatch replica that does not know of several."""
        pool = self._boot.register.pool
        path = f"{url}/v1/cells" + (f"?pool={pool}" if pool else "")
        async with self._replicas.http.get(path, headers=headers) as response:
            if response.status in (401, 403):
                # As it would refuse the link.
                raise aiohttp.WSServerHandshakeError(response.request_info, (), status=response.status)
            if response.status == 404:
                return []
            response.raise_for_status()
            try:
                return msgspec.json.decode((await read_reply(response)).body, type=CellList).cells
            except msgspec.DecodeError as error:
                raise BadValue(f"{url} answered with something that is no list of cells ({error})") from None

    def _handshake_refused(self, url: str, status: int) -> None:
        if status == 401 and self._boot.token:
            log.warning("Dispatch does not know our boot token any more", replica=url)
            self._boot.gone.set()
            return
        key = self._replicas.key(url)
        self._replicas.forget(url)
        if status not in (401, 403):
            log.error("Dispatch refused the link", replica=url, status=status)
        elif key:
            self._refused(f"{url} answered {status} to API key {id_of(key)}: give this Worker a key of role worker")
        elif status == 401:
            self._refused(
                f"{url} requires an API key, and this Worker has none: set DHSCHED_WORKER_KEY or --key-file to one of "
                "role worker (`dhsched worker join` gets one for a token). The key of a `dhsched up` or `dhsched run` "
                f"that the same user started on this machine would be in {KeyFile().path}"
            )
        else:
            self._refused(f"{url} answered 403: add the name in this URL to its allowed_origins, if it is missing")

    def _refused(self, reason: str) -> None:
        """Log the refusal, and note since when this Worker has been refused."""
        log.error("Dispatch refused this Worker", reason=reason)
        self._refusal = reason
        if self._refused_since is None:
            self._refused_since = asyncio.get_running_loop().time()

    def _give_up_if_refused(self, *, served: bool) -> None:
        """Raise KeyRefused after REFUSED_MAX_S of refusals. A registered boot goes on: only Dispatch ends it."""
        if served or self._boot.worker:
            self._refused_since = None
        since, now = self._refused_since, asyncio.get_running_loop().time()
        if since is not None and now - since >= REFUSED_MAX_S:
            raise KeyRefused(f"Dispatch refuses this Worker: {self._refusal}")

    def _greet(self, outbox: Outbox) -> None:
        boot = self._boot
        boot.chosen = False
        outbox.put(Resume(boot.token) if boot.token else boot.register)
        if boot.worker:
            self._begin(outbox)

    def _begin(self, outbox: Outbox) -> None:
        self.tell_devices()
        if self._drain_by is not None:
            self._ask_for_drain(outbox, self._drain_by)
        if self._exit:
            outbox.put(Exit())
        self.report_soon()

    def _ask_for_drain(self, outbox: Outbox, by: float) -> None:
        # Send the time that is left: the other machine's clock may differ.
        left_s = by - asyncio.get_running_loop().time()
        outbox.put(Drain(0.0 if left_s == float("inf") else min(max(left_s, 0.001), DRAIN_MAX_S)))

    async def _report_every_second(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        """Report from the loop that runs the sessions, so that a blocked loop looks dead (see watchdog.py)."""
        loop = asyncio.get_running_loop()
        connected_at = loop.time()
        while True:
            due = loop.time() + REPORT_S
            await asyncio.sleep(REPORT_S)
            self._lags.append(max(0.0, loop.time() - due))
            silent_since = self._asked_at if self._boot.worker else connected_at
            if silent_since is not None and loop.time() - silent_since >= SILENCE_MAX_S:
                log.warning("Dispatch is silent, trying another replica", silent_s=round(loop.time() - silent_since, 2))
                await socket.close()
                return
            self.report_soon()

    def _hear(self, said: FromDispatch) -> bool:
        """Act on one message; return whether it shows that this replica can serve the Worker."""
        boot = self._boot
        match said:
            case Reported():
                self._reported(said)
            case Registered():
                boot.worker, boot.token = said.worker, said.token
                self._on_registered(said.worker, said.token)
                self._on_controllers(said.controllers)
                if self._outbox is not None:
                    self._begin(self._outbox)
            case GoTo(cell):
                self._go_to(cell)
            case Wake() | Departed():
                self.report_soon()
            case Gone():
                # The answer to our Exit, or this boot was ended by Dispatch or replaced.
                (boot.exited if self._exit else boot.gone).set()
            case Goodbye():
                log.info("the replica is stopping, going to another one")
            case Problem():
                return self._problem(said)
        return True

    def _problem(self, said: Problem) -> bool:
        if said.code in NEVER and not self._boot.worker:
            self._refused(said.detail)
            return False
        log.warning("Dispatch refused", code=said.code, reason=said.detail)
        if said.code == UNAUTHORIZED:
            # Without a valid token this boot cannot go on.
            self._boot.gone.set()
        self._asked_at = self._answered_since = None
        return False

    def _go_to(self, cell: str) -> None:
        if cell != self.goes_to:
            self.goes_to, self._go_after = cell, 1 if self._asked_at is None else 2
            self.going.clear()
            if cell:
                self.report_soon()

    def _reported(self, said: Reported) -> None:
        if not self.answered_s:
            self._answered_since = asyncio.get_running_loop().time()
        self._asked_at = None
        self._heard_at = asyncio.get_running_loop().time()
        if said.token:
            self._boot.token = said.token
            self._on_registered(self._boot.worker, said.token)
        if said.controllers is not None:
            self._on_controllers(said.controllers)
        self.mode = said.mode
        self._go_after -= 1
        if said.mode != "draining":
            self._go_to("")  # The drain was cancelled.
        elif self.goes_to and self._go_after <= 0:
            self.going.set()
        if said.table is not None:
            self._agent.take_table(home=said.home, term=said.term, rev=said.rev, table=said.table, base=said.base)
        else:
            self._agent.act_soon()  # Repeats Departs that the table does not show.
        if self._again:
            self._again = False
            self.report_soon()
