"""The environment of an `--exec` child: the variables that programs and GPUs usually need, and those the user names.

A Worker's own environment may hold its API key and other secrets. A child runs somebody else's code, so it gets only
listed variables.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

USUAL = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "TZ", "TMPDIR", "LANG", "LANGUAGE", "LC_*"),
    *("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "PYTHONPATH", "PYTHONUNBUFFERED", "VIRTUAL_ENV", "SSL_CERT_*"),
    *("CUDA_*", "NVIDIA_*", "NCCL_*", "ROCR_*", "HIP_*", "HSA_*"),
)
"""Patterns of the variables that every child gets. docs/guides/write-a-runtime.md lists them."""
OURS = "DHSCHED_"


def child_environment(environment: Mapping[str, str], named: str) -> dict[str, str]:
    """Return the part of `environment` that a child gets. `named` adds names, separated by commas; `*` stands for
    anything, but matches no DHSCHED_ variable: such a name must be written whole."""
    wanted = [*USUAL, *(name.strip() for name in named.split(",") if name.strip())]

    def given(name: str) -> bool:
        if name.startswith(OURS):
            return name in wanted
        return any(fnmatchcase(name, pattern) for pattern in wanted)

    return {name: value for name, value in environment.items() if given(name)}
