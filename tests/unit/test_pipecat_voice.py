"""When a bot's turn is over, and what was heard of it."""

from __future__ import annotations

import pytest

from dhsched.pipecat.voice import Part, Voice, chars_heard


def test_a_spoken_text_is_over_when_its_sound_has_ended() -> None:
    voice = Voice()
    voice.begin()
    voice.word(Part("Yes?", speech="s"))
    voice.committed()
    assert not voice.over and not voice.idle, "the words are ahead of the sound"
    voice.speech_started("s")
    voice.speaking = True
    voice.speech_stopped("s")
    assert not voice.over
    voice.bot_stopped()
    assert voice.over and voice.idle and voice.heard == [Part("Yes?", speech="s")]
    voice.begin()
    assert not voice.over and voice.heard == []


def test_a_voice_that_does_not_tell_its_end_ends_with_the_output() -> None:
    voice = Voice()
    voice.speech_started("s")
    voice.speaking = True
    voice.bot_stopped()
    voice.word(Part("late", speech="s"))
    voice.committed()
    assert voice.over


def test_an_answer_goes_on_through_its_function_calls() -> None:
    voice = Voice()
    voice.response_started()
    voice.call_started("weather")
    voice.response_ended()
    assert not voice.over
    voice.call_ended("weather", answered=True)
    assert not voice.over, "the model answers to the result"
    voice.response_started()
    voice.response_ended()
    assert voice.over
    voice.begin()
    voice.call_started("log")
    voice.response_ended()
    voice.call_ended("log", answered=False)
    assert voice.over


def test_behind_an_interruption_words_of_the_cut_speech_do_not_count() -> None:
    voice = Voice()
    voice.response_started()
    voice.call_started("slow")
    voice.word(Part("One", speech="a"))
    voice.interrupted()
    voice.begin()
    assert voice.idle and not voice.over
    assert not voice.word(Part("two", speech="a")) and voice.heard == []
    assert voice.word(Part("Next", speech="b")) and voice.word(Part("and one without a name"))


@pytest.mark.parametrize(
    ("text", "heard", "chars"),
    [
        ("One two three.", "One two", 7),
        ("One  two\nthree.", "One two", 8),
        ("One two three.", "One two three.", 14),
        ("One two three. ", "One two three.", 15),
        ("One two three.", "", 0),
        ("One two three.", "One 2", 3),
        ("今日は。さようなら。", "今日は。", 4),
    ],
)
def test_what_was_heard_is_a_beginning_of_the_text(text: str, heard: str, chars: int) -> None:
    assert chars_heard(text, heard) == chars
