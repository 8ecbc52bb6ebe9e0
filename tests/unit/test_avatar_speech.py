"""Text to sound with times, and sounds to the shapes of a mouth."""

from __future__ import annotations

import pytest

from tests.harness.avatar_extra import require_avatar

require_avatar()

import asyncio
import threading
from itertools import pairwise

import numpy as np

from dhsched.avatar.espeak import VOICES, EspeakVoice, resampled
from dhsched.avatar.sentences import PIECE_CHARS_MAX, ends_in, pieces
from dhsched.avatar.speech import RATE, SpeechFailed, Utterance, say
from dhsched.avatar.visemes import LEAD_S, REST, VISEMES, Sound, Track, viseme_of

FIVE_WORDS = "Seven small boats sailed home."


# -- visemes


@pytest.mark.parametrize(
    ("phoneme", "viseme"),
    [("p", "PP"), ("m", "PP"), ("ˈoʊ", "OO"), ("tʃ", "CH"), ("t", "DD"), ("uː", "UU"), ("ˌæ", "AA"), ("ˈɛɹ", "EE"),
     ("s", "SS"), ("θ", "TH"), ("v", "FF"), ("ŋ", "KK"), ("l", "NN"), ("ɹ", "RR"), ("iː", "II"), ("", "rest"),
     ("_:", "rest"), ("☃", "rest")],
)  # fmt: skip
def test_a_phoneme_looks_like_its_viseme(phoneme: str, viseme: str) -> None:
    assert viseme_of(phoneme) == viseme


def test_there_are_fifteen_visemes() -> None:
    assert len(VISEMES) == 15
    assert all(0 <= value <= 1 for viseme in VISEMES.values() for value in viseme.mouth)


def test_lips_meet_for_a_p_between_open_vowels() -> None:
    track = Track([Sound(0.0, "ɑ"), Sound(0.2, "p"), Sound(0.28, "ɑ")], 0.5)
    assert track.mouth_at(0.1 - LEAD_S).open > 0.8
    assert track.mouth_at(0.24 - LEAD_S).open < 0.15
    assert track.mouth_at(0.4 - LEAD_S).open > 0.8


def test_a_mouth_never_jumps() -> None:
    track = Track([Sound(0.05, "ɑ"), Sound(0.2, "m"), Sound(0.3, "uː"), Sound(0.4, "s"), Sound(0.5, "")], 0.8)
    shapes = [track.mouth_at(ms / 1000) for ms in range(-100, 900)]
    steps = [max(abs(a - b) for a, b in zip(one, two, strict=True)) for one, two in pairwise(shapes)]
    assert max(steps) < 0.06, "in a millisecond"
    assert shapes[0] == REST and shapes[-1] == REST


def test_a_mouth_leads_the_sound() -> None:
    track = Track([Sound(0.0, ""), Sound(0.3, "ɑ"), Sound(0.5, "")], 0.8)
    opening = next(ms for ms in range(800) if track.mouth_at(ms / 1000).open > 0.5)
    closing = next(ms for ms in range(opening, 800) if track.mouth_at(ms / 1000).open < 0.5)
    # The sound lies symmetrically around 400 ms; the mouth does so around LEAD_S before that.
    assert (opening + closing) / 2 == pytest.approx(400 - LEAD_S * 1000, abs=5)


def test_no_sounds_are_a_mouth_at_rest() -> None:
    assert Track([], 1.0).mouth_at(0.5) == REST


# -- pieces of text


def test_text_is_cut_at_sentences() -> None:
    assert [*pieces("One. Two!  Three? «Four» five")] == ["One.", "Two!", "Three?", "«Four» five"]
    assert [*pieces("  \n ... \x00 ")] == [], "nothing to say"


def test_a_long_sentence_is_cut_at_pauses_then_words_then_anywhere() -> None:
    clause = "and so it goes on and on, " * 40
    assert all(piece.endswith(",") for piece in [*pieces(clause)][:-1])
    for text in (clause, "word " * 500, "x" * 5_000):
        found = [*pieces(text)]
        assert all(0 < len(piece) <= PIECE_CHARS_MAX for piece in found)
        assert "".join("".join(found).split()) == "".join(text.split()), "nothing is lost"


def test_what_no_voice_can_say_does_not_reach_it() -> None:
    assert [*pieces("a\x00b\x1b[31m\ud800 c")] == ["a b [31m c"]


# -- voices


@pytest.fixture(scope="module")
def voice() -> EspeakVoice:
    return EspeakVoice("anna")


async def test_a_reader_that_is_cancelled_when_its_voice_has_just_spoken_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    spoken: asyncio.Future[Utterance] = loop.create_future()
    monkeypatch.setattr(loop, "run_in_executor", lambda *_: spoken)

    async def read() -> None:
        await say(EspeakVoice("anna"), "Hello.")
        await asyncio.Event().wait()

    reading = asyncio.create_task(read())
    await asyncio.sleep(0)
    spoken.set_result(Utterance("Hello.", np.zeros(0, np.int16), ()))
    reading.cancel()
    await asyncio.wait([reading], timeout=5)
    assert reading.cancelled()


def test_an_utterance_has_sound_and_times_in_order(voice: EspeakVoice) -> None:
    utterance = voice.say("Hello there, my friend.")
    assert 1.0 < utterance.length_s < 3.0 and utterance.samples.dtype == np.int16
    energy = np.sqrt(np.mean(utterance.samples.astype(float) ** 2))
    assert energy > 500
    times = [sound.at_s for sound in utterance.sounds]
    assert times == sorted(times) and times[0] >= 0 and times[-1] <= utterance.length_s
    assert {viseme_of(sound.phoneme) for sound in utterance.sounds} >= {"PP", "FF", "TH", "rest"}


def test_fifty_words_last_about_ten_times_as_long_as_five(voice: EspeakVoice) -> None:
    five = voice.say(FIVE_WORDS).length_s
    fifty = sum(voice.say(piece).length_s for piece in pieces(" ".join([FIVE_WORDS] * 10)))
    in_one = voice.say(" ".join([FIVE_WORDS.rstrip(".").lower()] * 10)).length_s
    assert fifty / five == pytest.approx(10, rel=0.1)
    assert 6 < in_one / five < 11, "without the pauses between sentences"


def test_the_mouth_is_open_where_it_is_loud(voice: EspeakVoice) -> None:
    utterance = voice.say("Papa and mama are far away in Bahama.")
    track = Track(utterance.sounds, utterance.length_s)
    times = np.arange(0, utterance.length_s - 0.04, 0.02)
    loud = [float(np.std(utterance.samples[int(t * RATE) : int((t + 0.04) * RATE)])) for t in times]
    opened = [track.mouth_at(float(t)).open for t in times]
    assert np.corrcoef(loud, opened)[0, 1] > 0.4


@pytest.mark.parametrize("name", VOICES)
def test_every_voice_speaks(name: str) -> None:
    assert EspeakVoice(name).say("No, no.").length_s > 0.3


def test_voices_differ_and_one_is_always_the_same(voice: EspeakVoice) -> None:
    first, other, again = voice.say("Good day."), EspeakVoice("ben").say("Good day."), voice.say("Good day.")
    # Not to the sample: there is chance in a voice.
    assert first.length_s == pytest.approx(again.length_s, abs=0.02), "whoever spoke in between"
    assert abs(first.length_s - other.length_s) > 0.04


def test_text_has_a_bound_and_names_are_known(voice: EspeakVoice) -> None:
    with pytest.raises(SpeechFailed, match=f"at most {PIECE_CHARS_MAX}"):
        voice.say("x" * (PIECE_CHARS_MAX + 1))
    with pytest.raises(KeyError, match="no voice 'nobody'"):
        EspeakVoice("nobody")


def test_markup_is_read_out_not_obeyed(voice: EspeakVoice) -> None:
    assert voice.say('<break time="30s"/> hello').length_s < 15


def test_resampling_keeps_length_and_pitch() -> None:
    tone = (8_000 * np.sin(2 * np.pi * 440 * np.arange(22_050) / 22_050)).astype(np.int16)
    out = resampled(tone, 22_050)
    assert len(out) == pytest.approx(RATE, abs=40)
    assert int(np.argmax(np.abs(np.fft.rfft(out, RATE)))) == pytest.approx(440, abs=2)
    assert len(resampled(np.zeros(0, np.int16), 22_050)) == 0


async def test_speaking_does_not_block_the_loop() -> None:
    """The voice blocks until the loop has gone on: were it called there, neither would ever move."""
    gone_on = threading.Event()

    class Slow:
        def say(self, text: str) -> Utterance:
            assert gone_on.wait(20), "the loop stood still"
            return Utterance(text, np.zeros(0, np.int16), ())

    speaking = asyncio.create_task(say(Slow(), "hello"))
    await asyncio.sleep(0)
    gone_on.set()
    assert (await speaking).text == "hello"


async def test_many_may_speak_at_once(voice: EspeakVoice) -> None:
    said = await asyncio.gather(*(say(EspeakVoice(name), FIVE_WORDS) for name in ("anna", "ben") * 5))
    alone = {name: EspeakVoice(name).say(FIVE_WORDS) for name in ("anna", "ben")}
    for n, utterance in enumerate(said):
        same = alone[("anna", "ben")[n % 2]]
        assert [sound.phoneme for sound in utterance.sounds] == [sound.phoneme for sound in same.sounds]
        assert utterance.length_s == pytest.approx(same.length_s, abs=0.02)


def test_the_characters_of_a_piece_are_found_in_its_text() -> None:
    spoken_text = 'One  two.\n"Three,"  he said.\tFour...  !!  Five'
    end, heard = 0, []
    for piece in pieces(spoken_text):
        ends = ends_in(spoken_text, piece, end)
        assert len(ends) == len(piece) + 1 and ends == sorted(ends)
        end = ends[-1]
        heard.append(spoken_text[:end])
    assert heard[0] == "One  two."
    assert heard[-1] == spoken_text


def test_a_word_is_heard_when_the_next_one_begins() -> None:
    said = EspeakVoice("anna").say("Hello there, my friend.")
    heard = [said.heard(n) for n in range(0, len(said.samples) + 480, 480)]
    assert heard == sorted(heard)
    assert [said.text[:n] for n in dict.fromkeys(heard)] == [
        "",
        "Hello",
        "Hello there,",
        "Hello there, my",
        "Hello there, my friend.",
    ]
