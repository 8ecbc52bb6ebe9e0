"""`make cli-page`: docs/reference/cli.md, with the help of every verb and an example of its answer, in 80 columns.

The help is written anew each time, and a test compares it. The examples are kept, unless `--examples` is given: then
they are taken from a deployment that this program starts, on a terminal of 80 columns.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import pty
import re
import shlex
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from fcntl import ioctl
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup

from dhsched import cli
from dhsched.cli.sample import UpSettings, sample
from dhsched.local.ports import free_ports
from dhsched.store.server.embedded import Embedded
from dhsched.store.server.embedded_cluster import EmbeddedCluster
from dhsched.types import name_of
from tests.harness.tree import ROOT
from tests.harness.verbs import every_verb

PAGE = ROOT / "docs" / "reference" / "cli.md"
COLUMNS = 80
LIMIT_S = 300.0  # A command that takes longer is killed, and its name is printed.
LAST_S = 0.5  # A command that is interrupted has this long to show the rest of what it began to show.
SERVERS = {"DISPATCH": "URL", "INFER": "INFER"}
"""Variables of a room, and those of the verbs that name the same servers."""
MY_AVATAR = """
import asyncio


async def avatar(session):
    session.log(f"generation {session.generation.epoch} begins")
    async for item in session.inputs():
        session.log(f"says {item.text!r}")
        await asyncio.sleep(0.2)
"""
"""The runtime of the examples, my_avatar.py."""
OWN = {
    "dhsched up --any-port": "live why hello",
    "dhsched dev my_avatar:avatar --any-port": "live push hello",
    "dhsched demo": "",
    "dhsched calibrate my_avatar:avatar --max 4 --seconds 3": "",
    "dhsched run store": "unix",
    "dhsched config room": "",
    "dhsched bench link --rounds 1 --coroutines 100": "",
    "dhsched bench create --rounds 1 --creates 500": "",
    "dhsched bench select --decisions 250": "",
    "dhsched bench store --lives 20000": "",
    "dhsched bench settle --items 512 --rounds 1": "",
    "dhsched bench input --lives 20 --items 2000 --rounds 1 --no-peers": "",
    "dhsched bench avatar --seconds 2 --rounds 1 --no-room": "",
    "dhsched bench recovery --lives 32 --workers 4 --rate 50": "",
    "dhsched bench growth --lives 100 --workers 10 --seconds 1 --settle-s 0": "",
    "dhsched bench cells --cells 1,2 --rounds 1 --creates 100 --items 1000": "",
}
"""Examples that start what they need. One that goes on for ever is interrupted when the text after it was shown."""
FOLLOWING = {
    "dhsched run dispatch --port 0": "listens on",
    "dhsched run infer --port 0": "listens on",
    "dhsched run worker --runtime echo --pool gpu --capacity 2 --name gpu-a": "registered",
    "dhsched run room --port 0 --metrics-port 0": "listens on",
    "dhsched live watch hello": "acked",
}
"""Examples on the deployment of this page that are interrupted when the text after them was shown."""
IN_CELLS = ("dhsched cells ls", "dhsched cells move-worker worker-1#1 CELL --wait")
"""Examples on a deployment of two cells; CELL is the one in which worker-1 is not."""
EXAMPLES = (
    "dhsched pool put edge --region eu --label fast",
    "dhsched pool ls",
    "dhsched pool get gpu",
    "dhsched pool rebalance gpu",
    "dhsched pool rm edge",
    "dhsched digital-id put carla --pool gpu:0 --pool spare:1",
    "dhsched digital-id ls",
    "dhsched digital-id get anna",
    "dhsched digital-id rm carla",
    "dhsched live create anna --id hello",
    "dhsched live get hello",
    "dhsched live ls",
    "dhsched live set hello --label user=7",
    "dhsched live push hello 'Hello, world.' --boundary",
    "dhsched live watch hello",
    "dhsched live interrupt hello 'Stop.'",
    "dhsched live reassign hello",
    "dhsched live logs hello",
    "dhsched live history hello",
    "dhsched live why hello",
    "dhsched live watch-link hello",
    "dhsched why hello",
    "dhsched dead-letters hello",
    "dhsched worker ls",
    "dhsched worker wait worker-1",
    "dhsched worker get worker-1#1",
    "dhsched worker cordon worker-1#1",
    "dhsched worker uncordon worker-1#1",
    "dhsched worker drain worker-1#1 --wait",
    "dhsched worker drained worker-1#1",
    "dhsched worker undrain worker-1#1",
    "dhsched worker invite gpu-b --pool gpu --capacity 4",
    "dhsched worker join JOIN_TOKEN",
    "dhsched worker ban gpu-z --note 'sold'",
    "dhsched worker unban gpu-z",
    "dhsched run dispatch --port 0",
    "dhsched run infer --port 0",
    "dhsched run worker --runtime echo --pool gpu --capacity 2 --name gpu-a",
    "dhsched run room --port 0 --metrics-port 0",
    "dhsched doctor",
    "dhsched simulate --running --creates 10 --seeds 1",
    "dhsched events --limit 5",
    "dhsched recoveries",
    "dhsched top --once",
    "dhsched summary",
    "dhsched console",
    "dhsched tenant set acme --lives 100",
    "dhsched tenant ls",
    "dhsched tenant get acme",
    "dhsched tenant usage acme",
    "dhsched tenant rm acme",
    "dhsched key create --role app --note 'the shop'",
    "dhsched key mint --role reader",
    "dhsched key ls",
    "dhsched key revoke KEY_ID",
    "dhsched key rotate",
    "dhsched cells place --count 3",
    "dhsched store status",
    "dhsched store new-term --yes --reason 'restored from a backup'",
    "dhsched store backup main.backup",
    "dhsched store verify main.backup",
    "dhsched store restore main.backup --yes",
    "dhsched store migrate",
    "dhsched audit --limit 5",
    "dhsched live end hello",
    "dhsched context set prod --url https://a:7400,https://b:7400",
    "dhsched context use prod",
    "dhsched context ls",
    "dhsched context rm prod",
    *IN_CELLS,
    *OWN,
)
REACH_THE_STORE = ("dhsched run", "dhsched doctor", "dhsched store backup", "dhsched store migrate")
"""Examples that are given the store's URL."""
NONE = frozenset({("worker", "pod-costs")})
"""Verbs without an example: this one needs a cluster of Kubernetes."""
HEAD = """# The command line

Every verb of `dhsched`, for sessions (a session is called a *live* here), Workers and the rest: its help, and an
example of its answer, on a terminal of 80 columns.

**Which deployment.** `--url` and `--infer` name the servers; each address is tried until one answers. A flag wins over
the environment (`DHSCHED_URL`, `DHSCHED_INFER`, `DHSCHED_KEY`, `DHSCHED_KEY_FILE`, `DHSCHED_TLS_CA`, `DHSCHED_TENANT`),
which wins over the context (`dhsched context`), which wins over the default. `--context NAME`, before the verb, uses
another context for one call; it is refused if a variable is set that would win over it.

**Answers.** A table leaves out columns that do not fit the terminal and names them; `-o wide` or a pipe shows all.
`--json`, or `-o json`, prints one object: the server's document as [the API](api.md) has it. A list is in the object
under its own plural name, like `{"lives": [...]}`. Verbs that follow something (`events --follow`, `live watch`) print
one object per line.

**Exit codes.** 0: done. 1: refused, not reachable or not in time, with one sentence on standard error, which ends
with the problem's code if a server refused. 2: the command line is wrong.

The benchmarks are shown with small sizes, on a busy machine: their figures here only show the form of the answer.

This page is made by `make cli-page`; a test compares the help.
"""


def page(examples: Mapping[str, str]) -> str:
    """Return the page with these examples: what a terminal showed, by the words of the verb."""
    verbs = dict(every_verb())
    parts = [HEAD, "## dhsched", block(help_of((), typer.main.get_command(cli.app)))]
    family = ""
    for words, command in verbs.items():
        if len(words) > 1 and words[0] != family:
            family = words[0]
            parts += [f"## dhsched {family}\n\n{cli.VERBS[family].summary}"]
        name = " ".join(words)
        parts += [f"{'##' if len(words) == 1 else '###'} dhsched {name}", block(help_of(words, command))]
        if name in examples:
            parts += [block(examples[name])]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def block(text: str) -> str:
    return f"```text\n{text.strip()}\n```"


def help_of(words: tuple[str, ...], command: Any) -> str:
    """Return the help of a verb as a terminal of 80 columns shows it."""
    context = None
    *families, name = ("dhsched", *words)
    for word in families:
        context = typer.Context(TyperGroup(), info_name=word, parent=context)
    return str(command.get_help(typer.Context(command, info_name=name, parent=context, terminal_width=COLUMNS)))


def examples_in(text: str) -> dict[str, str]:
    """Return the examples of a page, by the words of the verb."""
    return by_verb(re.findall(r"^```text\n(\$ dhsched .*?)\n```$", text, re.MULTILINE | re.DOTALL))


def by_verb(shown: Iterable[str]) -> dict[str, str]:
    known = {words for words, _ in every_verb()}
    found = {}
    for each in shown:
        words = tuple(shlex.split(each.splitlines()[0])[2:])
        found[" ".join(next(words[:length] for length in (2, 1) if words[:length] in known))] = each
    return found


# -- examples


async def captured(part: str) -> dict[str, str]:
    """Run the examples, most of them against one deployment, and return what a terminal showed. With `part`, run only
    those that start what they need and have this text in their line."""
    with tempfile.TemporaryDirectory(prefix="dhsched-page-") as made:
        home = Path(made)
        work = home / "work"
        work.mkdir()
        (work / "my_avatar.py").write_text(MY_AVATAR)
        os.chdir(work)
        os.environ["PYTHONPATH"] = str(work)
        shown = [] if part else await on_a_deployment(home)
        for number, (line, until) in enumerate(OWN.items()):
            if part in line:
                terminal = Terminal(state(home / str(number)), {}, paths(home))
                shown.append(await asyncio.to_thread(terminal.run, line, until))
    return by_verb(shown)


async def on_a_deployment(home: Path) -> list[str]:
    """Run the examples that need a deployment, and return what a terminal showed."""
    os.environ |= state(home)
    async with Embedded() as store, Embedded() as empty, EmbeddedCluster(free_ports(3)) as cluster:
        settings = UpSettings(
            dispatch_ports=(0, 0),
            infer_port=0,
            room_port=0,
            metrics_port=0,
            runtime="my_avatar:avatar",
            store=store.address.url(),
        )
        async with sample(settings, lambda _name, _line: None) as made:
            os.environ["DHSCHED_URL"] = ",".join(each.url for each in made.processes.replicas)
            os.environ["DHSCHED_INFER"] = ",".join(each.url for each in made.processes.controllers)
            os.environ["DHSCHED_ROOM"] = made.page.partition("/live/")[0]
            async with made.processes.client() as client:
                [boot] = [each.worker async for each in client.workers() if each.worker.startswith("worker-1#")]
            roles = {"DHSCHED_STORE": store.address.url()}
            roles |= {f"DHSCHED_ROOM_{name}": os.environ[f"DHSCHED_{value}"] for name, value in SERVERS.items()}
            names, shown = {"worker-1#1": boot}, []
            for line in EXAMPLES:
                if line not in (*OWN, *IN_CELLS):
                    environment = roles if line.startswith(REACH_THE_STORE) else {}
                    if line.startswith("dhsched cells place"):
                        environment = {"DHSCHED_STORE": cluster.address.url()}
                    if line.startswith("dhsched store restore"):
                        environment = {"DHSCHED_STORE": empty.address.url()}
                    terminal = Terminal(environment, names, {**paths(home), boot: "worker-1#1"})
                    shown.append(await asyncio.to_thread(terminal.run, line, FOLLOWING.get(line, "")))
        shown += await on_cells(home, replace(settings, cells=2, workers=4, store=cluster.address.url()))
    for name in ("DHSCHED_URL", "DHSCHED_INFER", "DHSCHED_ROOM"):
        os.environ.pop(name, None)
    return shown


async def on_cells(home: Path, settings: UpSettings) -> list[str]:
    """Run the examples that need several cells, and return what a terminal showed."""
    shown = []
    async with sample(settings, lambda _name, _line: None) as made:
        os.environ["DHSCHED_URL"] = ",".join(each.url for each in made.processes.replicas)
        async with made.processes.client() as client:
            rows = {name_of(each.worker): each async for each in client.workers()}
        first, second = rows["worker-1"], rows["worker-2"]
        names = {"worker-1#1": first.worker, "CELL": str(second.cell)}
        for line in IN_CELLS:
            terminal = Terminal({}, names, {**paths(home), first.worker: "worker-1#1"})
            shown.append(await asyncio.to_thread(terminal.run, line, ""))
    return shown


def paths(home: Path) -> dict[str, str]:
    """Return how the folders of this run are shown."""
    return {f"{home}/work": "~/my_avatar", str(home): "~/.config"}


def state(folder: Path) -> dict[str, str]:
    return {"XDG_STATE_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}


class Terminal:
    """A terminal of 80 columns. `names` are the words of the examples that stand for what differs from run to run;
    `shown` is what of its output is shown otherwise."""

    def __init__(self, environment: Mapping[str, str], names: dict[str, str], shown: Mapping[str, str]) -> None:
        self._environment = environment
        self._names = names
        self._shown = shown

    def run(self, line: str, until: str) -> str:
        """Run a command line and return it, and what was shown. With `until`, interrupt it when that text was."""
        print(line, file=sys.stderr)
        typed = line
        for name, value in self._names.items():
            typed = typed.replace(name, value)
        said = self._said_by([sys.executable, "-m", "dhsched.cli", *shlex.split(typed)[1:]], until)
        self._learn(said)
        for value, name in self._shown.items():
            said = said.replace(value, name)
        hidden = re.sub(r"((?:token=|dhk_|dhj_|ey)[\w-]{8})[\w.-]{24,}", r"\1...", said)
        return f"$ {line}\n{folded(hidden)}".strip()

    def _said_by(self, words: list[str], until: str) -> str:
        main, terminal = pty.openpty()
        ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
        environment = {**os.environ, **self._environment, "TERM": "dumb"}
        process = subprocess.Popen(words, stdin=terminal, stdout=terminal, stderr=terminal, env=environment)
        os.close(terminal)
        said, interrupted = bytearray(), False
        limit = threading.Timer(LIMIT_S, process.kill)
        limit.start()
        while part := _read(main):
            said += part
            if until and until.encode() in said and not interrupted:
                interrupted = True
                time.sleep(LAST_S)
                process.send_signal(signal.SIGINT)
        limit.cancel()
        if process.wait() not in (0, 130) or (until and not interrupted):
            raise SystemExit(f"{words}: {said.decode()}")
        return said.decode().replace("\r\n", "\n")

    def _learn(self, said: str) -> None:
        if found := re.search(r"dhj_[\w-]+", said):
            self._names["JOIN_TOKEN"] = found[0]
        if found := re.search(r"dhk_([0-9a-z]+)_[\w-]+", said):
            self._names["KEY_ID"] = found[1]


def folded(text: str) -> str:
    """Return the text as a terminal shows it, which goes on in the next line at its right edge."""
    lines = [line.rstrip() for line in text.splitlines()]
    return "\n".join(line[at : at + COLUMNS].rstrip() for line in lines for at in range(0, len(line) or 1, COLUMNS))


def _read(file: int) -> bytes:
    try:
        return os.read(file, 65_536)
    except OSError:  # The last process that had the terminal has ended.
        return b""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--examples",
        nargs="?",
        const="",
        metavar="TEXT",
        help="take the examples anew; with a text only those of `OWN` whose line has it",
    )
    part = parser.parse_args().examples
    kept = examples_in(PAGE.read_text()) if PAGE.exists() else {}
    taken = {} if part is None else asyncio.run(captured(part))
    Path(PAGE).write_text(page(kept | taken if part != "" else taken))


if __name__ == "__main__":
    main()
