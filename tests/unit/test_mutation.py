"""Mutants made by a machine: what is changed, what is not, and that a run goes on where it was."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.mutation import lua, python, python_mutants
from tests.mutation.plant.dhsched_tracer import Tracer
from tests.mutation.reach import ROOT, SOURCE, Reach, function_around
from tests.mutation.results import FOLDER, Results, Row, digest_of, reasons
from tests.mutation.swap import swap

MODULE = '''
"""A module."""

LIMIT = 3


def decide(n: int = 7, *, also: bool = False) -> bool:
    """Whether it is so."""
    log.info("n is %d", n + 1)
    total = 0
    if n > LIMIT and not also:
        total += 1
        tell(n)
    assert total < 5
    return total == 1
'''


def test_a_lua_line_is_changed_in_one_place_at_a_time() -> None:
    found = dict(lua.changes("  if a >= b and c < d - 1 then -- not x"))
    assert found == {
        ">= => >": "  if a > b and c < d - 1 then",
        "< => <=": "  if a >= b and c <= d - 1 then",
        "and => or": "  if a >= b or c < d - 1 then",
        "- 1 =>": "  if a >= b and c < d then",
    }


def test_lua_lines_without_decisions_are_left_alone() -> None:
    assert [*lua.changes("-- a == b and c")] == []
    assert [*lua.changes("local cell = KEYS[1]")] == []
    assert [rule for rule, _ in lua.changes("  call('DEL', key)")] == ["dropped"]


def test_equal_lua_lines_have_names_of_their_own() -> None:
    text = "if a == b then\n  call('DEL', key)\nend\nif a == b then\n  call('DEL', key)\nend"
    names = [each.name for each in lua.mutants({"step": text})]
    assert len(names) == len({*names}) == 4


def test_python_mutants_change_decisions_and_nothing_else() -> None:
    found = {each.rule: each for each in python_mutants.mutants("module", MODULE)}
    assert set(found) == {"> => >=", "and => or", "not =>", "0 => 1", "1 => 2", "dropped", "== => !="}
    assert "n >= LIMIT and not also" in found["> => >="].source
    assert "n > LIMIT and also" in found["not =>"].source
    for each in found.values():
        ast.parse(each.source)
        assert "n: int = 7" in each.source and "total < 5" in each.source and "LIMIT = 3" in each.source


def test_a_statement_with_super_leaves_the_shape_of_its_method() -> None:
    source = "class B(A):\n    def f(self):\n        super().f()\n        g()\n        return not (a := self.n)\n"
    found = {each.line: each.source.splitlines()[each.line - 1].strip() for each in python_mutants.mutants("m", source)}
    assert found == {3: "__class__", 4: "pass", 5: "return (a := self.n)"}


def test_a_sample_stays_and_its_tests_are_there() -> None:
    drawn = [each.name for each in python.sample()]
    assert drawn == [each.name for each in python.sample()]
    assert len({*drawn}) == len(drawn) == python.SAMPLE
    kept = ["a line that is not there any more", *drawn[7:]]
    again = [each.name for each in python.sample(kept)]
    assert again == [*drawn[7:], *drawn[:7]], "what was drawn stays, and the first of the others take the places left"
    files = python.test_files()
    assert [path.name for path in files if not path.exists()] == []
    assert ROOT / "tests/unit/test_pulls.py" in files
    assert ROOT / "tests/unit/test_pulls_mutants.py" not in files, "it loads modules of its own"


def imported(path: Path, source: str) -> dict[str, Any]:
    module: dict[str, Any] = {}
    path.write_text(source)
    exec(compile(source, str(path), "exec"), module)
    return module


SWAPPED = """
def decide(n):
    return [each for each in range(n) if each > 1]

class Judge:
    @property
    def limit(self):
        return 1
    @limit.setter
    def limit(self, value):
        self.seen = value
    def judge(self, n):
        def inner():
            return n > self.limit
        return inner()
"""


def test_a_module_that_is_imported_has_the_mutant_s_code_and_then_its_own_again(tmp_path: Path) -> None:
    path = tmp_path / "swapped.py"
    module = imported(path, SWAPPED)
    decide, judge = module["decide"], module["Judge"]()
    inner = SWAPPED.replace("n > self.limit", "n >= self.limit")
    assert swap(SWAPPED, inner, str(path)) == 1
    assert judge.judge(1) and decide(4) == [2, 3]
    assert swap(inner, SWAPPED, str(path)) == 1 and not judge.judge(1)
    setter = SWAPPED.replace("self.seen = value", "pass")
    assert swap(SWAPPED, setter, str(path)) == 1
    judge.limit = 3
    assert judge.limit == 1 and not hasattr(judge, "seen"), "the getter has the same name, and stays"


def test_what_a_process_runs_is_written_down_line_by_line(tmp_path: Path) -> None:
    path = tmp_path / "traced.py"
    module = imported(path, SWAPPED)
    found: set[int] = set()
    tracer = Tracer((str(path),), lambda _, line: found.add(line))
    tracer.start()
    try:
        module["Judge"]().judge(1)
    finally:
        tracer.stop()
    module["decide"](1)
    assert found == {8, 13, 14, 15}


def test_the_lines_of_a_function_are_those_of_the_innermost() -> None:
    assert function_around(SWAPPED, 14) == {14}
    assert function_around(SWAPPED, 13) == {13, 14, 15}
    assert function_around(SWAPPED, 1) == set()


def reached(cpu_s: float, *lines: int, passed: bool = True) -> dict[str, Any]:
    return {"passed": passed, "cpu_s": cpu_s, "wall_s": cpu_s, "lines": {"dhsched/worker/reasons.py": [*lines]}}


def test_the_tests_of_a_line_are_those_that_run_it_and_cheap_ones_come_first(tmp_path: Path) -> None:
    path = ROOT / "tests/unit/test_reasons.py"
    source = (SOURCE / "dhsched/worker/reasons.py").read_text()
    first = next(node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef))
    line, last = first.body[-1].lineno, first.end_lineno or 0
    reach = Reach(tmp_path / "reach.json")
    assert reach.missing([path]) == [path]
    tests = {"dear": reached(2.0, line), "cheap": reached(0.1, line), "elsewhere": reached(0.1, last + 1)}
    reach.add(path, {**tests, "fails": reached(0.1, line, passed=False)})
    again = Reach(tmp_path / "reach.json")
    assert again.missing([path]) == [] and again.failed() == ["fails"]
    assert [test for test, _ in again.tests_of("dhsched.worker.reasons", line)] == ["cheap", "dear"]


@pytest.mark.release
def test_mutants_are_tried_in_forks(tmp_path: Path) -> None:
    """In a process of its own, as `make mutants` is: one mutant that a test notices, and one that none does."""
    ended = subprocess.run(
        [sys.executable, "-c", FORKS, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=110
    )
    assert ended.returncode == 0, ended.stderr
    noticed, unnoticed = ended.stdout.splitlines()[-2:]
    assert noticed.startswith("tests/unit/test_reasons.py::") and unnoticed == "nothing"


FORKS = """
import sys
from pathlib import Path
from tests.mutation import python
from tests.mutation.forks import Cost, Runner, collected
from tests.mutation.python_mutants import PythonMutant
from tests.mutation.reach import ROOT, SOURCE

source = (SOURCE / "dhsched/worker/reasons.py").read_text()
mutants = [source.replace("return ", "return not "), source + "\\n"]
found = {}

def work(items):
    runner = Runner(2)
    tests = [(item, Cost(1, 1)) for item in items.values()]
    for n, text in enumerate(mutants):
        mutant = PythonMutant("m", "dhsched.worker.reasons", 1, "r", text)
        runner.run(python.Trial(mutant, tests).killer, lambda killer, n=n: found.setdefault(n, killer))
    runner.finish()

collected([ROOT / "tests/unit/test_reasons.py"], work)
print(found[0])
print(found[1] or "nothing")
"""


def test_results_go_on_where_they_were(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    results = Results(path)
    results.write(Row("a", "f", 1, "dropped", "a scenario", digest_of("text")))
    results.write(Row("b, with a comma", "f", 2, "dropped", "", digest_of("text")))
    again = Results(path)
    assert again.rows == results.rows
    assert again.noticed("a", digest_of("text")) and not again.noticed("a", digest_of("other text"))
    assert not again.noticed("b, with a comma", digest_of("text")), "a survivor is tried again"
    again.tidy(["b, with a comma"])
    assert [row.name for row in Results(path).rows] == ["b, with a comma"]


def test_the_page_has_the_figures_of_the_results() -> None:
    page = (FOLDER.parents[1] / "docs/internals/testing.md").read_text()
    for kind, said in (("lua", "| Lua | {count:,} |"), ("python", "| Python | {count:,} of ")):
        rows = Results(FOLDER / f"{kind}.csv").rows
        count, survive = len(rows), sum(not row.killer for row in rows)
        noticed = count - survive
        row = next(line for line in page.splitlines() if line.startswith(said.format(count=count)))
        assert row.endswith(f" {noticed:,} ({noticed / count:.1%}) | {survive} |".replace("%", " %"))


def test_every_survivor_has_a_reason() -> None:
    known = reasons()
    for kind in ("lua", "python"):
        rows = Results(FOLDER / f"{kind}.csv").rows
        assert [row.name for row in rows if not row.killer and not known.get(row.name)] == []
