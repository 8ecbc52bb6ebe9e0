"""Janus from Debian behind the room: libnice, OpenSSL and libsrtp in place of aiortc at the other end."""

from __future__ import annotations

import shutil
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.harness.fleet import until
from tests.harness.networks import NEAR_ROOM, ROOM, networks

JCFG = """general: {{ log_to_stdout = true, debug_level = 4, configs_folder = "{folder}", protected_folders = [] }}
nat: {{ nice_debug = false, full_trickle = false }}
plugins: {{ disable = "{plugins}" }}
transports: {{ disable = "{transports}" }}
"""
HTTP = """general: {{ json = "compact", base_path = "/janus", http = true, port = 8088, ip = "{ip}" }}
admin: {{ admin_http = false }}
"""


def configure(folder: Path) -> Path:
    """A folder with the configuration of a Janus that has its VideoRoom, and HTTP, alone."""
    made = folder / "janus"
    made.mkdir()

    def others(kind: str, kept: str) -> str:
        found = {path.name for path in Path("/usr/lib").glob(f"*/janus/{kind}/*.so")}
        return ",".join(sorted(found - {kept}))

    plugins, transports = others("plugins", "libjanus_videoroom.so"), others("transports", "libjanus_http.so")
    (made / "janus.jcfg").write_text(JCFG.format(folder=made, plugins=plugins, transports=transports))
    (made / "janus.transport.http.jcfg").write_text(HTTP.format(ip=NEAR_ROOM))
    (made / "janus.plugin.videoroom.jcfg").write_text("general: { }\n")
    return made


async def test_janus_shows_a_live_to_its_viewers_over_one_connection(tmp_path: Path) -> None:
    if shutil.which("janus") is None:
        pytest.skip("NO JANUS: a media server of others is not tested; install janus")
    with networks() as three:
        async with AsyncExitStack() as stack:
            folder = configure(tmp_path)
            command = ("janus", "--config", str(folder / "janus.jcfg"), "--configs-folder", str(folder))
            janus = await stack.enter_async_context(three.running(three.between, *command))
            api = f"http://{NEAR_ROOM}:8088/janus"
            ingest = await stack.enter_async_context(
                three.module(three.between, "tests.peers.janus_ingest", NEAR_ROOM, "8080", api)
            )
            try:
                await ingest.until_ready()
                whip = ("--addresses", ROOM, "--whip", f"http://{NEAR_ROOM}:8080/whip/{{live}}")
                deployment = await stack.enter_async_context(
                    three.module(three.room, "tests.peers.inside", str(tmp_path), *whip)
                )
                await deployment.until_ready()
                await until(lambda: ingest.lines and ingest.lines[-1]["epoch"] == 1, "pictures behind Janus")
                deployment.write(b"kill")
                await until(lambda: ingest.lines[-1]["epoch"] == 2, "pictures of the next Worker behind Janus")
            except Exception as error:
                raise AssertionError(f"{error}; Janus said:\n{''.join(janus.printed[-40:])}") from error
            assert ingest.lines[-1]["offers"] == 1 and ingest.lines[-1]["deleted"] == 0
            deployment.write(b"end")
            await until(lambda: ingest.lines[-1]["deleted"] == 1, "the end of the live to reach Janus")
