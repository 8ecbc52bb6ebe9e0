"""docs/guides/deploy-compose.md, followed literally, with a stand-in for docker: services are processes, each at an
address of its own."""

from __future__ import annotations

import shutil
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.harness import composed
from tests.harness.containers import Network
from tests.harness.fleet import until, until_so
from tests.harness.guides import Shell, shell_blocks

PAGE = "docs/guides/deploy-compose.md"
READY_S = 60.0


@pytest.mark.release
@pytest.mark.timeout(300)
async def test_a_deployment_by_compose(tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("NOT TESTED: the guide's password needs openssl, which is not on PATH")
    read = composed.document({"DHSCHED_RUNTIME": "echo"})
    network, secrets = Network(read["services"]), tmp_path / "deploy" / "secrets"
    secrets.parent.mkdir()
    asked = tmp_path / "asked"
    cli = network.environment(composed.container("cli", read, secrets), tmp_path / "cli")
    exports = "".join(f"export {name}={value}; " for name, value in cli.items())
    docker = f"""
case "$*" in
  "compose up -d "*) shift 3; echo "$@" >> {asked} ;;
  "compose run --rm -T "*) shift 4; [ "$1" = -e ] && shift 2; [ "$1" = cli ]; shift; {exports}
    exec "{sys.executable}" -m dhsched.cli "$@" ;;
  *) echo "docker $*: unknown" >&2; exit 1 ;;
esac"""
    # The users of the containers do not exist here; the store's URL names an address instead of a service.
    addresses = {"@store:": f"@{network.addresses['store']}:"}
    replaced = {"\ncd deploy": "", **addresses}  # Each line runs there.
    shell = Shell(tmp_path / "shell", replaced, {"docker": docker, "chown": ""})

    async def run(block: str) -> str:
        """Run a block line by line, so that what a line starts is there for the next."""
        said = ""
        for line in block.splitlines():
            said += await shell.run(f"cd {tmp_path}/deploy\n{line}")
            for name in asked.read_text().split() if asked.exists() else ():
                await network.start(composed.container(name, read, secrets), tmp_path / name)
            asked.unlink(missing_ok=True)
        return said

    try:
        [makes_secrets] = shell_blocks(PAGE, "Secrets")
        await run(makes_secrets)
        [starts] = shell_blocks(PAGE, "Start")
        await run(starts)
        [works] = shell_blocks(PAGE, "See that it works")
        lines = works.splitlines()
        await run("\n".join(lines[:3]))
        await until_so(
            partial(run, lines[3]), lambda said: "worker-1" in said and "worker-2" in said, "both Workers", READY_S
        )
        said = await run("\n".join(lines[4:]))
        assert "/live/hello#token=" in said
        echoes = [network.started["worker-1"], network.started["worker-2"]]
        await until(lambda: any(each.consumed("hello") for each in echoes), "the words", READY_S)
    finally:
        await network.stop()
