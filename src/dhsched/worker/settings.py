"""Settings of a Worker."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from dhsched import addresses
from dhsched.errors import BadSetting
from dhsched.settings import TLS_CA, bounded, check, free, one_of, required
from dhsched.types import check_id
from dhsched.worker.agent import TEARDOWN_S

DISPATCH = "DHSCHED_URL"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """The settings of one Worker process. `name` is the machine's, `device` the GPU's: one process per device."""

    ROLE: ClassVar[str] = "worker"

    pool: str = required("Pool of this Worker.")
    capacity: int = required("Largest number of lives at once.", low=1, high=100_000)
    name: str = free("", "Name of the machine; the host name when empty.")
    device: str = free("", "Name of the device lock, at most one Worker per device; the name when empty.")
    labels: str = free("", "Labels that placement ranks by, separated by commas.")
    dispatch: tuple[str, ...] = free(
        addresses.DISPATCH, "URLs of Dispatch replicas, separated by commas.", environment=DISPATCH
    )
    key: str = field(
        default="", repr=False, metadata={"help": "API key of role worker, for the registration.", "secret": True}
    )
    key_file: str = free("", "File that contains the key, instead of the key itself.")
    tls_ca: str = TLS_CA
    drain_s: float = bounded(600, 0, 86_400, "Time after SIGTERM for lives to move; the rest is stopped.")
    teardown_s: float = bounded(TEARDOWN_S, 0.1, 600, "Time for a runtime to stop before it is cancelled.")
    blocked_max_s: float = bounded(10, 0, 600, "Time that a blocked event loop is reported alive; then it is lost.")
    lock_folder: Path | None = free(None, "Folder of the device locks; this user's.", flag="locks")  # noqa: RUF009
    exec_env: str = free("", "Variables passed to --exec children beside the usual ones; * stands for anything.")
    log_level: str = one_of("info", ("debug", "info", "warning", "error"), "Lowest level that is logged.")
    log_json: bool = free(False, "Logs as JSON lines.")

    def __post_init__(self) -> None:
        check(self)
        for value, what in ((self.pool, "pool"), (self.name, "worker name"), (self.device, "device")):
            if value or what == "pool":
                check_id(value, what)
        if not self.dispatch:
            raise BadSetting(f"no Dispatch replica is given: add --dispatch URL or set {DISPATCH}")
        addresses.addresses("Dispatch", self.dispatch)
