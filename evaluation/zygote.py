"""The process that hosts of Workers are forked from: a host that was killed is back without an interpreter's start.

python -m evaluation.zygote        (dhsched/local/zygote.py)
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from dhsched.bench.host import main
from dhsched.local.zygote import serve


def run(arguments: Sequence[str]) -> None:
    """A host of Workers, until it ends."""
    sys.argv = ["host", *arguments]
    main()


if __name__ == "__main__":
    serve(run)
