"""The product's ownership functions, explored exhaustively in small worlds: nothing wrong, and as many states as TLC's.

`make spec` compares the two state graphs themselves, and derives the numbers (spec/counts.json). Here a change of the
model that changes what can happen is noticed without Java: if it is meant, change the specification as well and run
`python -m spec --write`.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from spec import configuration, tlc
from spec.checks import CHECKS, HERE, module_of, read_counts, source_of, text_of, world
from spec.explore import explore

QUICK = [check.name for check in CHECKS if check.quick]
COUNTS = read_counts()


@pytest.mark.parametrize("name", QUICK)
def test_every_reachable_state_is_right_and_known_to_the_specification(name: str) -> None:
    """`strict` also raises if two states have the same projection and are not equal as a whole; it costs a little."""
    made = world(name, strict=name in ("Agents", "Poison"))
    explored = explore(made)
    assert explored.violation is None, str(explored.violation)
    assert explored.complete
    assert explored.states == COUNTS[name]
    assert len({made.projection(key) for key in explored.keys}) == explored.states


@pytest.mark.long
@pytest.mark.parametrize("name", [check.name for check in CHECKS if check.compare and not check.quick])
def test_larger_worlds(name: str) -> None:
    explored = explore(world(name, strict=True))
    assert explored.violation is None, str(explored.violation)
    assert explored.states == COUNTS[name]


def test_the_kept_counts_are_those_of_the_compared_configurations() -> None:
    assert list(COUNTS) == [check.name for check in CHECKS if check.compare]


def test_every_configuration_is_checked_and_switches_on_what_exists() -> None:
    """A group that is misspelt would switch nothing on, and prove nothing."""
    assert {path.stem for path in HERE.glob("*.cfg")} == {check.name for check in CHECKS}
    for check in CHECKS:
        module = source_of(check.module)
        known = set(re.findall(r'Has\("(\w+)"\)', module))
        assert configuration.read(check.name).on <= known, check.name
        named = re.findall(r"(?m)^(?:INVARIANTS|PROPERTIES) (.+)$", text_of(check.name))
        for invariant in " ".join(named).split():
            assert re.search(rf"(?m)^{invariant} ==", module), f"{check.name} checks {invariant}"
        assert module_of(check.name) == check.module


def test_safety_is_checked_in_full_wherever_it_is_checked() -> None:
    full = {"DHSched": "I0 I1 I2 I3 I4 I5 I7 Moves Final Slots Floor Need", "Input": "I3 I6 I7 Order Repeat Moves Once"}
    full["Marks"] = "Cursors Consumed Granted"
    full["Journal"] = "Exact Known"
    full["Emits"] = "Ordered Whole"
    full["Time"] = "Claimed Replaced Restarted Patient Paced I7"
    full["Failover"] = "Twice NotRun Reported Kept OneSide"
    full["Homes"] = "H0 H1 H3 I2 I4 I5 I7 Moves Floor Need Twice Quiet Audible"
    full["Cells"] = "Twice Same NotTwo OneOwner Quiet Named"
    full["CellWorkers"] = "I4 Own Given Ended"
    for check in CHECKS:
        named = re.findall(r"(?m)^(?:INVARIANTS|PROPERTIES) (.+)$", text_of(check.name))
        if "SPECIFICATION Fair" not in text_of(check.name):
            assert set(" ".join(named).split()) == set(full[check.module].split()), check.name


DOT = r"""strict digraph DiskGraph {
-1 [label="/\\ a = [y |-> <<1, TRUE>>,\n  x |-> \"t\"]\n/\\ b = <<>>",style = filled]
-1 -> 2 [label="",color="black",fontcolor="black"];
2 [label="/\\ a = [x |-> \"u\", y |-> <<<<2>>>>]\n/\\ b = -1"];
2 -> 2 [label="",color="black",fontcolor="black"];
}
"""


def test_reading_a_state_graph_of_tlc(tmp_path: Path) -> None:
    path = tmp_path / "graph.dot"
    path.write_text(DOT, encoding="utf-8")
    graph = tlc.read_graph(path)
    assert graph.states == {"-1": {"a": ("t", (1, True)), "b": ()}, "2": {"a": ("u", ((2,),)), "b": -1}}
    assert graph.steps == {("-1", "2")}


def test_reading_what_tlc_says() -> None:
    good = "No error has been found.\n12,345 states generated, 678 distinct states found, 0 states left on queue.\n"
    assert tlc.read_output(good, 1.0).states == 678
    assert tlc.read_output("Error: Invariant I2 is violated.\n", 1.0).violated == "I2"
    assert tlc.read_output("Error: Action property I0 is violated.\n", 1.0).violated == "I0"
    assert tlc.read_output("Error: Temporal properties were violated.\n", 1.0).violated == "temporal"
    with pytest.raises(RuntimeError, match="did not finish"):
        tlc.read_output("Error: Parsing or semantic analysis failed.", 1.0)


def test_a_constant_that_is_not_there_is_not_silently_left_out() -> None:
    assert 'Mutant = "x"' in tlc.with_constants(text_of("Fence"), Mutant='"x"')
    with pytest.raises(ValueError, match="sets Mutants 0 times"):
        tlc.with_constants(text_of("Fence"), Mutants='"x"')
