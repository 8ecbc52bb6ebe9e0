"""Mutants of the room's fence, which its unit tests must notice."""

from __future__ import annotations

import pytest

from dhsched.room import fence
from tests.unit.mutants import Mutant, first_failure, mutated_tests, runs_of

PRODUCT = {"fence": fence}
TESTS = ("test_room_fence",)
EMPTIED = "Fence(home=home, on_air=fence.on_air)"


def mutant(text: str, now: str) -> Mutant:
    return Mutant("fence", text, now)


MUTANTS = {
    # Homes
    "keeps its highest": mutant(EMPTIED, "replace(fence, home=home, admitted=frozenset())"),
    "keeps whom it admitted": mutant(EMPTIED, "replace(fence, home=home, highest=0)"),
    "keeps its home": mutant(EMPTIED, "Fence(home=fence.home, on_air=fence.on_air)"),
    "takes who is on air off": mutant(EMPTIED, "Fence(home=home)"),
    "keeps the first home": mutant('home in ("", fence.home)', 'fence.home or home == ""'),
    "takes no word of a home for another home": mutant('home in ("", fence.home)', "home == fence.home"),
    "empties itself at every answer": mutant('home in ("", fence.home)', 'home == ""'),
    "forgets the home at a take-over": mutant(
        "replace(fence, on_air=epoch), Verdict", "Fence(highest=epoch, on_air=epoch), Verdict"
    ),
    # Who may publish
    "judges by the home before": mutant(
        "    fence = in_home(fence, home)\n    verdict = judge(fence, asking, current)\n",
        "    verdict = judge(fence, asking, current)\n    fence = in_home(fence, home)\n",
    ),
    "admits nobody": mutant("fence.admitted | {asking.epoch}", "fence.admitted"),
    "admits nobody else": mutant("fence.admitted | {asking.epoch}", "frozenset({asking.epoch})"),
    "keeps who was never issued": mutant("return leave(fence, asking.epoch), verdict", "return fence, verdict"),
    "admits what was never issued": mutant("if asking.epoch > current.epoch:", "if False:"),
    "admits whoever is current to a late answer": mutant(
        "if asking.epoch < max(current.epoch, fence.highest):", "if asking.epoch < current.epoch:"
    ),
    "admits another Worker": mutant("if asking.worker != current.worker:", "if False:"),
    "admits a superseded one": mutant(
        "    return fence, verdict\n", "    return replace(fence, admitted=fence.admitted | {asking.epoch}), verdict\n"
    ),
    "asks only who was silent": mutant(
        "epoch not in fence.admitted or silent_s > SILENCE_MAX_S", "silent_s > SILENCE_MAX_S"
    ),
    "asks nobody who was silent": mutant(" or silent_s > SILENCE_MAX_S", ""),
    "hears whom it did not admit": mutant("    assert epoch in fence.admitted, ", "    assert True, "),
    "keeps who leaves": mutant("admitted=fence.admitted - {epoch}", "admitted=fence.admitted"),
    "keeps whom it admitted to an ended live": mutant("admitted=frozenset(), on_air=0", "on_air=0"),
    # What passes
    "forwards what is superseded": mutant("if epoch < fence.highest:", "if False:"),
    "forwards before a keyframe": mutant("    if keyframe:\n", "    if True:\n"),
    "waits for a keyframe of who is on air": mutant("    if epoch == fence.on_air:\n", "    if False:\n"),
    "counts nothing as heard": mutant("if epoch > fence.highest:", "if False:"),
    "counts as heard only with a keyframe": mutant(
        "if epoch > fence.highest:", "if epoch > fence.highest and keyframe:"
    ),
    "does not count who goes on in another home": mutant(
        "if epoch > fence.highest:", "if epoch > fence.highest and epoch != fence.on_air:"
    ),
    "goes on in the middle of another connection": mutant("if fence.on_air == epoch else fence", "if False else fence"),
    "takes who is on air off for who connects": mutant("if fence.on_air == epoch else fence", "if True else fence"),
}


def test_the_tests_pass_without_a_mutant(monkeypatch: pytest.MonkeyPatch) -> None:
    tests = mutated_tests(monkeypatch, PRODUCT, TESTS, None)
    assert sum(1 for each in tests for _ in runs_of(each)) > 20
    assert first_failure(tests) is None


@pytest.mark.parametrize("name", MUTANTS)
def test_the_tests_notice_a_mutant_that(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert first_failure(mutated_tests(monkeypatch, PRODUCT, TESTS, MUTANTS[name])) is not None
