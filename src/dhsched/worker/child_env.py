"""The environment of an `--exec` child: what programs and GPUs usually need, and what the user names.

A Worker's own environment may hold its API key, and whatever else the machine's owner put there. A child runs somebody
else's code, so it is given names from a list, not everything but a list.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

USUAL = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "TZ", "TMPDIR", "LANG", "LANGUAGE", "LC_*"),
    *("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "PYTHONPATH", "PYTHONUNBUFFERED", "VIRTUAL_ENV", "SSL_CERT_*"),
    *("CUDA_*", "NVIDIA_*", "NCCL_*", "ROCR_*", "HIP_*", "HSA_*"),
)
"""Patterns of names that every child is given. docs/guides/write-a-runtime.md lists them."""
OURS = "DHSCHED_"


def child_environment(environment: Mapping[str, str], named: str) -> dict[str, str]:
    """What a child is given of `environment`. `named` has further names, separated by commas; `*` stands for anything,
    but matches no setting of ours: such a name must be written whole."""
    wanted = [*USUAL, *(name.strip() for name in named.split(",") if name.strip())]

    def given(name: str) -> bool:
        if name.startswith(OURS):
            return name in wanted
        return any(fnmatchcase(name, pattern) for pattern in wanted)

    return {name: value for name, value in environment.items() if given(name)}
