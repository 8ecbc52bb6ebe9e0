"""Settings of a Worker."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from dhsched import addresses
from dhsched.errors import BadSetting
from dhsched.settings import TLS_CA, bounded, check, free, one_of, required, shown_key
from dhsched.types import check_id
from dhsched.worker.agent import TEARDOWN_S

DISPATCH = "DHSCHED_URL"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """What a Worker is. `name` is the machine's, `device` the GPU's: one process per device."""

    ROLE: ClassVar[str] = "worker"

    pool: str = required("The Pool it belongs to.")
    capacity: int = required("Lives that it holds at once.", low=1, high=100_000)
    name: str = free("", "The machine's name; the host name when empty.")
    device: str = free("", "What is locked against a second Worker; the name when empty.")
    labels: str = free("", "Separated by commas; they rank it.")
    dispatch: tuple[str, ...] = free(
        addresses.DISPATCH, "URLs of Dispatch replicas, separated by commas.", environment=DISPATCH
    )
    key: str = field(
        default="", repr=False, metadata={"help": "The API key that it registers with, of role worker.", "secret": True}
    )
    key_file: str = free("", "A file with that key in it, instead.")
    tls_ca: str = TLS_CA
    drain_s: float = bounded(600, 0, 86_400, "How long SIGTERM waits for its lives to move.")
    teardown_s: float = bounded(TEARDOWN_S, 0.1, 600, "For a runtime to stop before it is cancelled.")
    blocked_max_s: float = bounded(10, 0, 600, "How long a blocked event loop is spoken for; then it is lost.")
    lock_folder: Path | None = free(None, "Where device locks lie; a folder of this user's.", flag="locks")  # noqa: RUF009
    exec_env: str = free("", "Variables that --exec children are given beside the usual ones; * stands for anything.")
    log_level: str = one_of("info", ("debug", "info", "warning", "error"), "What is logged.")
    log_json: bool = free(False, "Logs as JSON lines.")

    def __post_init__(self) -> None:
        check(self)
        for value, what in ((self.pool, "pool"), (self.name, "worker name"), (self.device, "device")):
            if value or what == "pool":
                check_id(value, what)
        if not self.dispatch:
            raise BadSetting(f"no Dispatch replica is named; give --dispatch URL or set {DISPATCH}")
        addresses.addresses("Dispatch", self.dispatch)

    def shown_key(self) -> str:
        """The API key, from wherever it is; empty without one."""
        return shown_key(self.key, self.key_file)
