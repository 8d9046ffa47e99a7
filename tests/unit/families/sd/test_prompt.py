"""What the signs in a prompt mean, and how tokens come into chunks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inline_core.families.sd.chunks import chunked
from inline_core.families.sd.prompt import UP, Words, parsed


@pytest.mark.parametrize(
    ("prompt", "wanted"),
    [
        ("a cat", [("a cat", 1.0)]),
        ("a (cat) here", [("a ", 1.0), ("cat", UP), (" here", 1.0)]),
        ("((cat))", [("cat", UP * UP)]),
        ("[cat]", [("cat", 1 / UP)]),
        ("(cat:1.3)", [("cat", 1.3)]),
        ("((cat:1.2):1.5)", [("cat", 1.2 * 1.5)]),
        ("(a (b:2) c:0.5)", [("a ", 0.5), ("b", 1.0), (" c", 0.5)]),
        (r"\(cat\) \[x\] \\", [(r"(cat) [x] \ ".strip(), 1.0)]),
        (r"(cat\):1.2)", [("cat)", 1.2)]),
        ("(cat", [("(cat", 1.0)]),
        ("cat)", [("cat)", 1.0)]),
        ("[(a]) b", [("(a", 1 / UP), (") b", 1.0)]),
        ("(a:b)", [("a:b", UP)]),
        ("16:9 a", [("16:9 a", 1.0)]),
        ("(a:1.0) b", [("a b", 1.0)]),
        ("", []),
    ],
)
def test_brackets_weigh(prompt: str, wanted: list[tuple[str, float]]) -> None:
    found = parsed(prompt)
    assert [words.text for words in found] == [text for text, _ in wanted]
    assert [words.weight for words in found] == pytest.approx([weight for _, weight in wanted])


def test_embeddings_are_named_within_weights() -> None:
    assert parsed("x (embedding:foo.v1:1.2), embedding:bar") == [
        Words("x ", 1.0),
        Words("foo.v1", 1.2, embedding=True),
        Words(", ", 1.0),
        Words("bar", 1.0, embedding=True),
    ]


_SIGNS = st.text(alphabet="ab ()[]\\:.1-", max_size=60)


@given(st.one_of(st.text(max_size=60), _SIGNS))
def test_no_text_is_refused_and_no_word_is_lost(prompt: str) -> None:
    words = parsed(prompt)
    kept = "".join(piece.text for piece in words)
    if not set(prompt) & set("()[]\\:"):
        assert kept == prompt
    assert all(letter in kept for letter in set(prompt) & set("ab"))


@given(st.lists(st.sampled_from(["()", "[]", "(:1.5)", "(:.5)"]), max_size=8))
def test_weights_multiply(around: list[str]) -> None:
    text, weight = "word", 1.0
    for pair in around:
        text = pair[0] + text + pair[1:]
        weight *= {"()": UP, "[]": 1 / UP, "(:1.5)": 1.5, "(:.5)": 0.5}[pair]
    (words,) = parsed(text)
    assert words.text == "word"
    assert words.weight == pytest.approx(weight)


def test_deep_brackets_take_no_time() -> None:
    (words,) = parsed("(" * 3000 + "a" + ")" * 3000)
    assert words.text == "a"


def chunk_sizes(*lengths: int) -> list[int]:
    words = [Words(" ".join("x" * length for length in lengths))]
    made = chunked(words, lambda word: [1] * len(word), lambda _: [], 75)
    return [len(chunk) for chunk in made]


def test_a_word_is_not_torn_apart_but_a_long_one_is() -> None:
    assert chunk_sizes() == [0]
    assert chunk_sizes(*[5] * 15) == [75]
    assert chunk_sizes(*[4] * 19) == [72, 4]
    assert chunk_sizes(70, 20) == [75, 15]
    assert chunk_sizes(160) == [75, 75, 10]
