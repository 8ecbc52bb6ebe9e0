"""From Lua files to scripts: headers are read, parts assembled in order, arguments bound by name."""

from __future__ import annotations

import hashlib
from dataclasses import fields

import pytest

from dhsched.ownership.limits import Limits
from dhsched.ownership.steps import STEPS
from dhsched.store.steps.redis import encode
from dhsched.store.steps.scripts import (
    DENY_OOM,
    LIBRARY,
    Script,
    assemble,
    default_scripts,
    header,
    join,
    limit_values,
    load,
    names,
    scripts_around,
    sources,
)

HEADER = """\
-- greet: say hello, in a sentence that
-- goes on.
--
-- USES     clock now
-- RARELY   agenda live: look_at, read_live
-- KEYS     cell      hash
-- ARGV     name, lease_ms,
--          mood
-- EACH     live, n
-- RETURNS  HELLO who    a word in capitals
--          NOT_YET
--          GO, AWAY when    (or never)
local name, lease_ms, mood = unpack(ARGV)
-- ARGV     this comes after the code has begun
return { 'HELLO', now, name }
"""


def text(**files: str) -> dict[str, str]:
    """The library as it is, and these files."""
    return {**sources(), **{name.replace("lib_", "lib/"): source for name, source in files.items()}}


def lines(script: Script) -> list[str]:
    return [" ".join(line.split()) for line in script.source.decode().splitlines()]


# -- headers


def test_a_header_has_its_sections_with_their_further_lines() -> None:
    sections = header(HEADER)
    assert list(sections) == ["USES", "RARELY", "KEYS", "ARGV", "EACH", "RETURNS"]
    assert sections["ARGV"] == "name, lease_ms,\nmood"
    assert sections["KEYS"] == "cell      hash"


def test_a_header_ends_where_the_code_begins() -> None:
    assert header("local x = 1\n-- ARGV     x\n") == {}
    assert "this comes after" not in header(HEADER)["ARGV"]


def test_what_stands_before_the_first_section_is_prose() -> None:
    assert header("-- greet: ARGV is a word, too\n-- and USES as well\n") == {}


def test_names_are_the_words_of_a_list() -> None:
    assert names("live, worker_id,\nack_wait_ms") == ("live", "worker_id", "ack_wait_ms")
    assert names("") == ()


def test_a_script_knows_its_contract() -> None:
    script = assemble("greet", text(greet=HEADER))
    assert script.name == "greet"
    assert script.uses == ("clock", "now")
    assert script.argv == ("name", "lease_ms", "mood")
    assert script.each == ("live", "n")
    assert script.replies == ("HELLO", "NOT_YET", "GO", "AWAY")


def test_every_step_is_loaded_with_its_contract() -> None:
    scripts = default_scripts()
    assert {*scripts} == {*STEPS, "place_create"}
    for name, script in scripts.items():
        assert script.name == name
        assert script.replies, name
        assert script.argv or script.each, name


# -- assembly


def test_parts_come_in_the_order_in_which_they_build_on_each_other() -> None:
    backwards = " ".join(reversed(LIBRARY))
    source = f"-- x: y\n--\n-- USES     {backwards}\n-- RETURNS  HELLO\nreturn {{ 'HELLO' }}\n"
    marks = {f"lib/{part}": f"local part_{part} = 1" for part in LIBRARY}
    script = assemble("greet", {**marks, "greet": source})
    assert lines(script)[1 : 1 + len(LIBRARY)] == [f"local part_{part} = 1" for part in LIBRARY]


@pytest.mark.parametrize(
    ("step", "parts"),
    [
        ("snapshot", ["base"]),
        ("enter", ["base"]),
        ("release_input", ["base", "home"]),
        ("announce", ["base", "home"]),
        ("place", ["base", "server", "home", "here", "counted"]),
        ("configure", ["base", "server", "home", "here", "counted"]),
        ("settle", ["base", "server", "home", "here"]),
        ("same_home", ["base", "server", "home", "here"]),
    ],
)
def test_what_a_script_compares_first_is_there_whatever_its_header_says(step: str, parts: list[str]) -> None:
    marks = {f"lib/{part}": f"local part_{part} = 1" for part in LIBRARY}
    script = assemble(step, {**marks, step: "-- x: y\n-- RETURNS  HELLO\nreturn { 'HELLO' }\n"})
    code = lines(script)[1:]
    assert [line for line in code if line.startswith("local part_")] == [f"local part_{part} = 1" for part in parts]
    assert (code[-1] == "return reply" and "reply[#reply + 1] = pos" in code) == ("counted" in parts)


def test_a_part_that_does_not_exist_is_named() -> None:
    with pytest.raises(ValueError, match=r"greet.lua uses \['cloak'\], which lua/lib does not have"):
        assemble("greet", text(greet="-- greet: x\n-- USES     cloak\n-- RETURNS  HELLO\n"))


def test_comment_lines_are_not_loaded() -> None:
    for name, script in default_scripts().items():
        assert [line for line in lines(script)[1:] if line.lstrip().startswith("--") or not line.strip()] == [], name


def test_rare_parts_stand_inside_a_function_that_returns_what_was_asked_for() -> None:
    code = lines(assemble("greet", text(greet=HEADER)))
    begin = code.index("local function rarely()")
    end = code.index("return look_at, read_live")
    assert begin < code.index("local function look_at(class, live, when)") < end
    assert begin < code.index("local function read_live(live)") < end
    assert code[end + 1] == "end"
    assert code.index("now = clock()") < begin
    assert code.index("local name, lease_ms, mood = unpack(ARGV)") > end


def test_without_rare_parts_there_is_no_such_function() -> None:
    assert "rarely" not in default_scripts()["reserve"].source.decode()


def test_a_replaced_file_changes_the_scripts_that_use_it_and_no_other() -> None:
    clock = "local function clock() return 7 end"
    scripts = load({"lib/clock": clock})
    for name, script in scripts.items():
        assert (clock in script.source.decode()) == ("clock" in script.uses), name
    assert scripts["release_input"] == default_scripts()["release_input"]


def test_a_script_is_known_by_the_hash_that_the_server_gives_it() -> None:
    script = default_scripts()["look"]
    assert script.sha1 == hashlib.sha1(script.source).hexdigest()


# -- a full store


def test_only_new_work_is_refused_by_a_full_store() -> None:
    first = {name: lines(script)[0] for name, script in default_scripts().items()}
    assert {name for name, line in first.items() if line == "#!lua"} == {"append_input", "place_create"}
    assert {line for name, line in first.items() if name not in DENY_OOM} == {"#!lua flags=allow-oom"}
    around = {name for name, script in scripts_around().items() if lines(script)[0] == "#!lua"}
    assert around == {"describe"} and around < DENY_OOM


def test_place_and_place_create_are_one_script_under_two_flags() -> None:
    scripts = default_scripts()
    place, create = scripts["place"], scripts["place_create"]
    assert lines(place)[1:] == lines(create)[1:]
    assert (place.argv, place.replies) == (create.argv, create.replies)
    assert place.sha1 != create.sha1


# -- arguments


def test_arguments_are_bound_by_name_and_limits_bind_themselves() -> None:
    script = assemble("greet", text(greet=HEADER))
    limits = limit_values(Limits(lease_ms=123))
    assert script.bind(limits, {"mood": "good", "name": "anna", "unused": 1}) == ["anna", 123, "good"]


def test_a_limit_cannot_be_overridden_by_an_argument() -> None:
    script = assemble("greet", text(greet=HEADER))
    limits = limit_values(Limits(lease_ms=123))
    assert script.bind(limits, {"mood": "good", "name": "anna", "lease_ms": 5}) == ["anna", 123, "good"]


def test_a_missing_argument_is_an_error_and_not_a_shift() -> None:
    with pytest.raises(KeyError, match="mood"):
        assemble("greet", text(greet=HEADER)).bind(limit_values(Limits()), {"name": "anna"})


def test_limits_are_all_there_with_their_values() -> None:
    limits = Limits(walk_max=7)
    assert limit_values(limits) == {field.name: getattr(limits, field.name) for field in fields(Limits)}


def test_what_the_store_gives_is_what_the_script_asks_for() -> None:
    values = {"worker": "A#1", "live": "t/L", "number": 3, "reason": "returned"}
    encode("depart", values)
    bound = default_scripts()["depart"].bind(limit_values(Limits()), values)
    assert bound == ["A#1", "t/L", 3, "returned", Limits().lease_ms, Limits().backoff_max_ms]


def test_a_list_of_ids_is_one_argument() -> None:
    assert join(["A#1", "B#2"]) == "A#1 B#2"
    assert join([]) == ""
