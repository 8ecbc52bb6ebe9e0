"""docs/guides/pipecat.md, "Five minutes": its file and its commands, as they are printed, on other ports.

Two things are not literal: the models are a scripted server with OpenAI's interface (OPENAI_BASE_URL),
and the client is aiortc in the place of a browser.
"""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

import aiohttp
import pytest

from dhsched.local.ports import free_port
from tests.harness import guides
from tests.harness.fleet import until_so
from tests.harness.guides import Shell, end_all, shell_blocks, up
from tests.harness.scripted_llm import scripted_llm
from tests.harness.tree import document
from tests.harness.webrtc_caller import Caller

pytestmark = pytest.mark.pipecat
PAGE = "docs/guides/pipecat.md"
WAIT_S = 240.0
ANSWERS = {
    "Who are you?": "I am Anna, and I have so much to tell you that you will have to be patient with me for a while.",
    "And what did I ask first?": "You asked who I am.",
}


async def test_five_minutes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guides, "BLOCK_S", 300.0)  # Importing Pipecat takes a busy machine long.
    up_block, bots, session, ask, end = shell_blocks(PAGE, "Five minutes")
    folder = tmp_path / "bot"
    folder.mkdir()
    (folder / "bot.py").write_text(re.findall(r"```python\n(.*?)```", document(PAGE), re.DOTALL)[0])
    port = free_port()
    shell = Shell(tmp_path, {"7860": str(port)}, {"python": f'exec "{sys.executable}" "$@"'})
    try:
        async with up(shell, up_block), scripted_llm(ANSWERS) as llm, aiohttp.ClientSession() as http:
            for name, value in {"OPENAI_BASE_URL": llm.url, "OPENAI_API_KEY": "none"}.items():
                shell.export(name, value)
            here = f"cd {folder}\n"
            await shell.run(here + bots)
            await shell.run(here + session)
            caller = Caller(http, f"http://127.0.0.1:{port}")
            caller.session = re.findall(r'sessionId": ?"([^"]+)', (folder / "started").read_text())[0]
            try:
                await caller.connect()
                await shell.run(here + ask)
                heard = asyncio.Event()
                connected = asyncio.create_task(caller.stay_connected(heard.is_set))
                await until_so(
                    lambda: shell.run("dhsched live get $SESSION --json"),
                    lambda said: '"acked": 2' in said or '"acked":2' in said,
                    "both answers",
                    WAIT_S,
                )
                heard.set()
                await connected
                assert caller.tones, "it was heard"
            finally:
                await caller.close()
            said = [(each["role"], each["content"]) for each in llm.asked[-1]]
            first, second = ANSWERS
            assert said[-3:] == [("user", first), ("assistant", ANSWERS[first]), ("user", second)]
            history = await shell.run("dhsched live history $SESSION")
            assert "one" in history and "two" in history
            await shell.run(here + end)
    finally:
        end_all(folder)
