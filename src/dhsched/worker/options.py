"""The settings of a Worker as keyword arguments, with their types, for `run` and `Worker`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, TypedDict

from dhsched.errors import BadSetting
from dhsched.settings import nearest, settings_from
from dhsched.worker.settings import WorkerSettings


class WorkerOptions(TypedDict, total=False):
    """Settings of settings.py by name; `config` names a configuration file. A setting that is not given comes from the
    environment, the configuration file, or the default."""

    pool: str
    capacity: int
    cell: str
    dispatch: str | Sequence[str]
    name: str
    device: str
    device_crashes_max: int
    labels: str
    key: str
    key_file: str
    tls_ca: str
    drain_s: float
    teardown_s: float
    blocked_max_s: float
    lock_folder: Path | None
    exec_env: str
    process_per_live: bool
    metrics_host: str
    metrics_port: int
    insecure: bool
    log_level: str
    log_json: bool
    log_lines_per_s: float
    config: str | Path


def settings_of(options: Mapping[str, Any]) -> WorkerSettings:
    """Return complete settings. Raise BadSetting for an option that is unknown or has a bad value."""
    known = {"config", *(each.name for each in fields(WorkerSettings))}
    if unknown := next((name for name in options if name not in known), None):
        raise BadSetting(f"a Worker has no setting {unknown}{nearest(unknown, known)}")
    dispatch = options.get("dispatch")
    urls = dispatch if dispatch is None or isinstance(dispatch, str) else tuple(dispatch)
    return settings_from(WorkerSettings, {**options, "dispatch": urls})
