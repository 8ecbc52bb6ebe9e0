"""Services with one check of the hostile side's rights taken out each: what a storm with a hostile side must see.

They are changes to one line of a module, made before the module is imported (zygote.py).
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import NamedTuple


class Unchecked(NamedTuple):
    """A module of the product, one line of it, and what stands there instead."""

    module: str
    old: str
    new: str

    def plant(self) -> None:
        """Import the module with the change. Nobody may have imported it before."""
        assert self.module not in sys.modules, f"{self.module} has been imported already"
        spec = importlib.util.find_spec(self.module)
        assert spec is not None and spec.origin is not None
        source = Path(spec.origin).read_text()
        assert source.count(self.old) == 1, f"{self.module} has {self.old!r} {source.count(self.old)} times"
        module = importlib.util.module_from_spec(spec)
        sys.modules[self.module] = module
        exec(compile(source.replace(self.old, self.new), spec.origin, "exec"), module.__dict__)


UNCHECKED = {
    # A Worker says hello with another boot's token on a connection of its own.
    "hello-of-another": Unchecked("dhsched.infer.pull", "if of_another or (self.boot is not None", "if (False"),
    # A Worker's link resumes another Worker's boot.
    "resume-of-another": Unchecked(
        "dhsched.dispatch.worker_link", 'if self._caller.worker not in ("", proven.boot.worker):', "if False:"
    ),
    # A viewer token is good for every live.
    "viewer-of-another": Unchecked(
        "dhsched.room.viewer_gate", "if found.viewer.live != live_key(self._tenant, live_id):", "if False:"
    ),
    # Nobody looks at the signature of a Worker's token.
    "unsigned": Unchecked("dhsched.tokens", 'options={"verify_exp": False,', 'options={"verify_signature": False,'),
}
