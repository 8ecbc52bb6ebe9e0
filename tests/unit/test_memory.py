"""Which messages of a context are in the journal: exactly the new ones, and never more than fits."""

from __future__ import annotations

from typing import Any

from dhsched.worker.journal import ENTRIES_MAX, ENTRY_BYTES_MAX, Journal
from dhsched.worker.memory import KEPT_ENTRIES, TOO_LARGE, WHOLE, Memory

PROMPT = [{"role": "system", "content": "You are Anna."}]


def says(role: str, content: Any) -> dict[str, Any]:
    return {"role": role, "content": content}


def test_only_what_is_new_is_appended_and_the_prompt_is_the_bot_s() -> None:
    journal = Journal()
    memory = Memory(journal, PROMPT)
    talk = [says("user", "Hello."), says("assistant", "Hi.")]
    assert memory.messages == PROMPT and memory.keep([*PROMPT, *talk])
    first = journal.acked()
    assert first is not None and len(first.entries) == 2 and journal.values() == talk
    assert not memory.keep([*PROMPT, *talk]) and journal.acked() is None
    memory.keep([*PROMPT, *talk, says("user", "Bye.")])
    change = journal.acked()
    assert change is not None and len(change.entries) == 1 and change.drop == 0
    other = [says("system", "You are Ben.")]
    assert Memory(journal, other).messages == [*other, *talk, says("user", "Bye.")]


def test_a_message_that_changed_replaces_the_journal() -> None:
    journal = Journal()
    memory = Memory(journal, ())
    call = {"role": "assistant", "tool_calls": [{"id": "1"}]}
    memory.keep([call, {"role": "tool", "content": "IN_PROGRESS", "tool_call_id": "1"}])
    memory.keep([call, {"role": "tool", "content": "42", "tool_call_id": "1"}])
    assert [each["content"] for each in journal.values()[1:]] == ["42"]
    memory.keep([says("assistant", "A summary.")])
    assert journal.values() == [says("assistant", "A summary.")]


def test_a_context_whose_prompt_was_changed_is_kept_as_a_whole() -> None:
    journal = Journal()
    changed = [says("system", "You are tired now."), says("user", "Hello.")]
    memory = Memory(journal, PROMPT)
    memory.keep(changed)
    assert journal.values() == [WHOLE, *changed]
    assert Memory(journal, PROMPT).messages == changed
    memory.keep([*changed, says("assistant", "Hi.")])
    assert Memory(journal, PROMPT).messages == [*changed, says("assistant", "Hi.")]


def test_of_a_context_that_is_too_long_the_latest_messages_are_kept() -> None:
    journal = Journal()
    memory = Memory(journal, PROMPT)
    talk = [says("tool" if n % 2 else "user", f"message {n}") for n in range(ENTRIES_MAX)]
    memory.keep([*PROMPT, *talk])
    assert len(journal) == ENTRIES_MAX
    talk.append(says("assistant", "One more."))
    memory.keep([*PROMPT, *talk])
    kept = journal.values()
    assert KEPT_ENTRIES - 1 <= len(kept) <= KEPT_ENTRIES and kept == talk[-len(kept) :] and kept[0]["role"] != "tool"
    journal.acked()
    talk.append(says("assistant", "And another."))
    memory.keep([*PROMPT, *talk])
    change = journal.acked()
    assert change is not None and len(change.entries) == 1, "only the new message"


def test_a_message_that_no_entry_can_hold_leaves_a_note_and_odd_values_are_text() -> None:
    journal = Journal()
    memory = Memory(journal, ())
    memory.keep([says("user", "x" * ENTRY_BYTES_MAX), says("user", {"at": ValueError})])
    assert journal.values() == [says("user", TOO_LARGE), says("user", {"at": "<class 'ValueError'>"})]
