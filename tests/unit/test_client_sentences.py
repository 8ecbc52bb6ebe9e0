"""Tokens become sentences, and nothing of the text is lost."""

from __future__ import annotations

from random import Random

from dhsched.client.sentences import SENTENCE_CHARS_MAX, Sentences

TEXT = 'Pi is 3.14, roughly.  "Is it?" she said... Yes! 你好。很好！ok\n\nA new line\n'


def joined(tokens: list[str]) -> list[str]:
    sentences = Sentences()
    found = [each for token in tokens for each in sentences.add(token)]
    return [*found, *filter(None, [sentences.rest()])]


def test_a_sentence_ends_where_the_next_one_begins() -> None:
    assert joined([TEXT]) == [
        "Pi is 3.14, roughly.  ",
        '"Is it?" ',
        "she said... ",
        "Yes! ",
        "你好。",
        "很好！",
        "ok\n\n",
        "A new line\n",
    ]


def test_however_it_is_cut_the_text_is_the_same() -> None:
    for seed in range(50):
        r, rest, tokens = Random(seed), TEXT * 3, []
        while rest:
            size = r.randint(1, 7)
            tokens.append(rest[:size])
            rest = rest[size:]
        assert "".join(joined(tokens)) == TEXT * 3
        assert joined(tokens) == joined([*(TEXT * 3)])


def test_a_long_sentence_is_cut_between_words() -> None:
    found = joined(["word " * 200, "x" * 1_000])
    assert all(len(each) <= SENTENCE_CHARS_MAX for each in found) and found[0].endswith("word ")
    assert "".join(found) == "word " * 200 + "x" * 1_000
