"""The product with one rule broken, for virtual runs: lines of services, of the model and of Lua files, or any of the
Lua mutants.

They are planted before the product is imported. `test_virtual_mutants.py` says which schedule must find which.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType
from typing import NamedTuple


class Change(NamedTuple):
    """A module of the product or one of its Lua files, one text of it, and what stands there instead."""

    file: str
    old: str
    new: str

    @property
    def is_lua(self) -> bool:
        return not self.file.startswith("dhsched.")


class Broken(NamedTuple):
    """One rule that is broken. Where the rule is in the model as well, it is broken in both, so that the model cannot
    find it: a judge of what the whole does must. `defect` is a number in docs/internals/virtual-runs.md."""

    rule: str
    changes: tuple[Change, ...]
    defect: int = 0
    cells: bool = False
    """Whether the rule is one of several cells."""


BROKEN = {
    "request-id-ignored": Broken(
        "A request that is repeated under its id is stored once.",
        (Change("dhsched.infer.push", "request = given or new_request()", "request = new_request()"),),
    ),
    "journal-not-read": Broken(
        "A runtime that takes over reads the journal.",
        (
            Change(
                "dhsched.worker.pull_client",
                "stream.inbox.journal_read(said.journal_last, said.journal)",
                "stream.inbox.journal_read(said.journal_last, [])",
            ),
        ),
    ),
    "configuration-not-read": Broken(
        "A runtime that takes over has the configuration of its live.",
        (
            Change(
                "dhsched.worker.pull_client",
                "stream.inbox.begins_after(said.after, said.config, said.saved)",
                "stream.inbox.begins_after(said.after, b'', said.saved)",
            ),
        ),
    ),
    "stopped-worker-stays": Broken(
        "A Worker that is asked to end waits for its lives for drain_s, and no longer.",
        (Change("dhsched.worker.main", "if loop.time() >= give_up:", "if False:"),),
    ),
    "watchdog-is-not-heard": Broken(
        "A Worker whose loop is blocked is not lost while its watchdog reports.",
        (
            Change(
                "dhsched.dispatch.api.blocked",
                "outcome = await store.report(worker=worker, boot=boot.boot, link=self.context.replica)",
                "outcome = None",
            ),
        ),
        defect=8,
    ),
    "handshake-without-end": Broken(
        "A stream does not wait for the answer to its handshake for longer than some seconds.",
        (Change("dhsched.client.http", "async with asyncio.timeout(within_s):", "async with asyncio.timeout(None):"),),
    ),
    "nobody-recovers": Broken(
        "A live that must be placed anew is placed anew.",
        (Change("dhsched.dispatch.recovery.recover", "if isinstance(outcome, o.Recover):", "if outcome is None:"),),
    ),
    "get-remembers": Broken(
        "A GET reads the store.",
        (
            Change(
                "dhsched.dispatch.api.lives",
                "    record = await context.records.lives.get(live_key(asked.caller.tenant, live_id))\n",
                "    kept, one = find_live.__dict__, f'{context.replica} {live_id}'\n"
                "    if kept.get(one) is None:\n"
                "        kept[one] = await context.records.lives.get(live_key(asked.caller.tenant, live_id))\n"
                "    record = kept[one]\n",
            ),
        ),
    ),
    "counts-without-marks": Broken(
        "A runtime goes on only on the history that it has: items have marks.",
        (
            Change("dhsched.ownership.fence", "return mark == record.acked_mark", "return True"),
            Change(
                "dhsched.ownership.fence",
                "n <= record.appended and mark == items.mark_of(record.pending[n - record.acked - 1])",
                "n <= record.appended",
            ),
            Change("lib/item", "if mark ~= known then", "if not known then"),
            Change("lib/item", "return mark == known", "return known ~= nil"),
        ),
        defect=1,
    ),
    "scripts-run-on-a-moving-slot": Broken(
        "A script runs on a slot that is being moved either whole or not at all.",
        (Change("lib/base", "call('EXISTS', prefix .. 'never')", ""),),
        defect=2,
    ),
    "pull-begins-a-term": Broken(
        "Only an operator begins a term.",
        (
            Change(
                "dhsched.infer.pull",
                "self._pull_text.pulls.never_issued += 1",
                "await self._pull_text.store.new_term(term=1)",
            ),
        ),
        defect=3,
    ),
    "numbers-of-fourteen-digits": Broken(
        "Numbers are written with all their digits.",
        (Change("lib/base", "return string.format('%d', n)", "return tostring(n)"),),
        defect=3,
    ),
    "controller-is-never-left": Broken(
        "A Worker leaves a controller that does not reach the store.",
        (Change("dhsched.worker.pull_client", "\nUNAVAILABLE_S = 2.0", "\nUNAVAILABLE_S = 1e9"),),
        defect=4,
    ),
    "interrupt-is-progress": Broken(
        "An interrupt is no progress of the runtime.",
        (
            Change(
                "dhsched.ownership.steps.append_input",
                "note=(stands, record.note[1]) if record.note and record.note[0] == record.cursors else record.note,",
                "note=record.note,",
            ),
            Change("append_input", "call('HSET', key, 'note', stands .. at)", ""),
        ),
        defect=6,
    ),
    "forgiven-at-the-claim": Broken(
        "A crash loop is forgiven at the first ack, not at the claim.",
        (
            Change(
                "dhsched.ownership.steps.pull",
                "s.set_live(live, active=worker, note=None, stalled=None, current=current)",
                "s.set_live(live, active=worker, note=None, stalled=None, current=current, starts=0)",
            ),
            Change("pull", "call('HDEL', key, 'note', 'stalled')", "call('HDEL', key, 'note', 'stalled', 'starts')"),
        ),
        defect=7,
    ),
    "configuration-stays": Broken(
        "A configuration with which generations die before their first ack is taken back.",
        (
            Change("dhsched.ownership.poison", "if record.fallback is None:", "if True:"),
            Change("place", "starts >= number(poison_max) and r.fallback then", "false then"),
        ),
        defect=7,
    ),
    "configuration-is-a-proof": Broken(
        "The ack of a configuration does not show that a runtime lives with the one before it.",
        (
            Change(
                "dhsched.ownership.steps.ack_input",
                "config, fallback = brought, config if fallback is None else fallback",
                "config, fallback = brought, config",
            ),
            Change("ack_input", "brought and (fallback or config or", "brought and (config or"),
        ),
    ),
    "loss-is-said-once": Broken(
        "A loss is said again if the event that said so is lost.",
        (Change("dhsched.store.homes", "(*self.losses, *self.repeated)", "self.losses"),),
    ),
    "silence-is-death": Broken(
        "A generation of a Worker that was only silent has not died over its item.",
        (
            Change("dhsched.ownership.steps.report", "        take_back(s, worker)", "        pass"),
            Change("report", "if generation ~= own then", "if true then"),
        ),
        defect=8,
    ),
    "room-shows-ended-lives": Broken(
        "A room takes a live off the air that has ended.",
        (
            Change(
                "dhsched.room.publish",
                'if publishing.state == "ended":\n            await',
                "if False:\n            await",
            ),
        ),
        defect=10,
    ),
    "room-forgets-the-highest": Broken(
        "No picture of a lower generation follows one of a higher generation.",
        (
            Change("dhsched.room.fence", "if epoch < fence.highest:", "if False:"),
            Change("dhsched.room.live_room", "self._fence_off(self._fence.highest)", "pass"),
        ),
    ),
    "nobody-leaves-the-line": Broken(
        "A live that cannot be placed leaves the waiting line.",
        (
            Change(
                "dhsched.ownership.steps.place",
                'elif cause == "recover" and not candidates:',
                "elif False:",
            ),
            Change("place", "elseif cause == 'recover' and candidates == '' then", "elseif false then"),
        ),
        defect=9,
    ),
    "create-in-another-cell": Broken(
        "A live is created in the cell of its id.",
        (
            Change(
                "dhsched.dispatch.cells.front",
                "cell_of(self.names, live_key(tenant, live_id))",
                "cell_of(self.names[::-1], live_key(tenant, live_id))",
            ),
        ),
        cells=True,
    ),
    "registers-while-stopping": Broken(
        "A Worker registers, in whatever cell, only when no runtime is left.",
        (
            Change("dhsched.worker.main", "await self._agent.stopped()", "pass"),
            Change(
                "dhsched.cells.workers",
                "return last.cell",
                "return min({*slots} - {last.cell}, default=last.cell)",
            ),
        ),
        cells=True,
    ),
    "waits-for-every-cell": Broken(
        "A list of all cells does not wait for a cell that is away.",
        (Change("dhsched.store.reaching", "\nAWAY_S = 0.5", "\nAWAY_S = 600.0"),),
        cells=True,
    ),
    "configuration-is-not-copied": Broken(
        "Every cell has the configuration and the keys of the first one.",
        (Change("dhsched.dispatch.cells.copies", "if not revs:", "if True:"),),
        cells=True,
    ),
}


class Text(SourceFileLoader):
    """Loads a module with its text changed."""

    def __init__(self, changes: Sequence[Change], path: str) -> None:
        super().__init__(changes[0].file, path)
        self._changes = changes

    def get_code(self, fullname: str) -> CodeType:
        return compile(changed(self.get_data(self.path).decode(), self._changes), self.path, "exec")


class Finder(MetaPathFinder):
    """Finds the broken modules before anybody else does."""

    def __init__(self, changes: Sequence[Change]) -> None:
        self._changes = changes

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        changes = [each for each in self._changes if each.file == fullname]
        spec = PathFinder.find_spec(fullname, path) if changes else None
        if spec is not None and spec.origin is not None:
            spec.loader = Text(changes, spec.origin)
        return spec


def changed(text: str, changes: Sequence[Change]) -> str:
    """Return the text of a file with its changes; each old text must be there once."""
    for file, old, new in changes:
        assert text.count(old) == 1, f"{file} has {old!r} {text.count(old)} times: bring its mutant up to date"
        text = text.replace(old, new)
    return text


def plant(name: str) -> None:
    """Break the rule in this process. Nobody may have imported the modules before."""
    changes = BROKEN[name].changes if name in BROKEN else ()
    imported = [each.file for each in changes if each.file in sys.modules]
    assert not imported, f"{imported} have been imported already"
    sys.meta_path.insert(0, Finder([each for each in changes if not each.is_lua]))
    lua = {each.file for each in changes if each.is_lua}
    if changes and not lua:
        return
    from dhsched.store.steps import redis, scripts
    from tests.conformance.mutants import MUTANTS

    sources, replacements = scripts.sources(), dict[str, str]()
    for file in sorted(lua):
        replacements[file] = changed(sources[file], [each for each in changes if each.file == file])
    for mutant in MUTANTS:
        if mutant.name == name:
            replacements = mutant.replacements()
    if not replacements:
        raise SystemExit(f"there is no mutant {name}: one of {', '.join(BROKEN)}, or of tests/conformance/lua_mutants")
    broken = scripts.load(replacements)
    setattr(redis, "default_scripts", lambda: broken)  # noqa: B010
