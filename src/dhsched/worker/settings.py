"""Settings of a Worker."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from dhsched import addresses
from dhsched.errors import BadSetting
from dhsched.links.messages import DEVICES_MAX
from dhsched.settings import TLS_CA, bounded, check, check_metrics_host, free, one_of, required
from dhsched.types import check_id
from dhsched.worker.agent import TEARDOWN_S

DISPATCH = "DHSCHED_URL"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """The settings of one Worker process. `name` is the machine's, `device` the GPU's."""

    ROLE: ClassVar[str] = "worker"

    pool: str = required("Pool of this Worker.")
    capacity: int = required("Largest number of lives at once.", low=1, high=100_000)
    name: str = free("", "Name of the machine; the host name when empty.")
    device: str = free(
        "", "Devices of this Worker, separated by commas; the name when empty. At most one Worker per device."
    )
    device_crashes_max: int = bounded(
        4, 1, 10_000, "Lives that may crash on one of several devices in 10 minutes before others are used first."
    )
    labels: str = free("", "Labels that placement ranks by, separated by commas.")
    cell: str = free(
        "",
        "Cell to register in, where the deployment has several; the last one, or where least is free, when empty.",
        environment="DHSCHED_WORKER_CELL",
    )
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
    process_per_live: bool = free(False, "Each live's runtime in a process of its own, which runs the setup too.")
    metrics_host: str = free("127.0.0.1", "Address on which /metrics, /healthz and /readyz are served.")
    metrics_port: int = bounded(0, 0, 65535, "Port on which /metrics, /healthz and /readyz are served; 0 serves none.")
    insecure: bool = free(False, "Permission to serve /metrics beyond loopback, where the network keeps strangers out.")
    log_level: str = one_of("info", ("debug", "info", "warning", "error"), "Lowest level that is logged.")
    log_json: bool = free(False, "Logs as JSON lines.")
    log_lines_per_s: float = bounded(100, 0, 200, "Log lines of runtimes kept for `dhsched live logs`; 0 keeps none.")

    def __post_init__(self) -> None:
        check(self)
        check_id(self.pool, "pool")
        if self.name:
            check_id(self.name, "worker name")
        for device in self.devices:
            check_id(device, "device")
        if len(self.devices) > DEVICES_MAX:
            raise BadSetting(f"device names {len(self.devices)} devices; at most {DEVICES_MAX} are possible")
        if len({*self.devices}) < len(self.devices):
            raise BadSetting(f"device names a device twice: {self.device}")
        check_metrics_host(self.metrics_host, port=self.metrics_port, insecure=self.insecure)
        if not self.dispatch:
            raise BadSetting(f"no Dispatch replica is given: add --dispatch URL or set {DISPATCH}")
        addresses.addresses("Dispatch", self.dispatch)

    @property
    def devices(self) -> tuple[str, ...]:
        return tuple(each.strip() for each in self.device.split(",")) if self.device else ()
