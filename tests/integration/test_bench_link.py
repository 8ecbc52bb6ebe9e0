"""`dhsched bench link`: its last line is one JSON object, and the link keeps the distance that the design asks for."""

import json
import subprocess
import sys

import pytest

from dhsched.bench.link import RATIO_MIN


@pytest.mark.release
def test_the_link_takes_a_third_of_the_cpu_of_pipelined_redis_py_at_most() -> None:
    command = [sys.executable, "-c", "from dhsched.cli import main; main()", "bench", "link", "--json", "--rounds", "3"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    result = json.loads(done.stdout)
    assert {"link_us_per_op", "redispy_pipelined_us_per_op", "link_ops_per_s", "rounds", "server"} <= result.keys()
    assert result["ratio_vs_redispy_pipelined"] >= RATIO_MIN, result
