"""A child that is prepared before its generation is committed goes on from what was saved in between."""

from __future__ import annotations

import sys
from pathlib import Path

from dhsched import testing
from dhsched.worker import Exec

CHILD = """
import json, sys
for line in sys.stdin:
    said = json.loads(line)
    if "open" in said or "resume" in said:
        count = int((said.get("open") or said["resume"])["state"])
    elif "input" in said:
        count += 1
        print(json.dumps({"ack": said["input"]["seq"], "state": str(count)}), flush=True)
    elif "close" in said:
        break
"""


async def test_a_prepared_child_is_told_what_was_saved_since(tmp_path: Path) -> None:
    script = tmp_path / "child.py"
    script.write_text(CHILD)
    async with testing.live(Exec(f"{sys.executable} {script}"), state=b"39", wait_s=20, teardown_s=20) as live:
        prepared = await live.prepare()
        assert not prepared.claimed.is_set(), "nothing is claimed before the commit"
        await live.push("x")
        await live.push("x", boundary=True)
        await live.acked(2)
        assert live.saved_state == b"41"
        await live.move()
        assert live.session is prepared
        await live.push("x")
        await live.acked(3)
        assert live.saved_state == b"42"
