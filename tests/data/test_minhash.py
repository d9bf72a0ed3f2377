import json
import random
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data.waves import judged
from tokenmill.data import minhash
from tokenmill.data.minhash import bands_and_rows, signatures
from tokenmill.data.params import NearDuplicateParams

PARAMS = NearDuplicateParams(enabled=True, threshold=0.8, permutations=128, ngram=5)
TEXT = st.text("abz19 `{/:AÉŒ.,“—\n\t中ไ。", max_size=60)


def reference(text: str, ngram: int) -> set[tuple[str, ...]]:
    """The shingles of a text, as sets and a regular expression have them."""
    words = re.findall(r"[中ไ]|[a-z0-9éœ]+", text.lower())
    if not words:
        return {(text,)}
    return {tuple(words[at : at + ngram]) for at in range(max(1, len(words) - ngram + 1))}


def jaccard(one: set, other: set) -> float:
    return len(one & other) / len(one | other)


def hashed(texts: list[str], ngram: int) -> list[set[int]]:
    sets: list[set[int]] = [set() for _ in texts]
    for part in minhash.shingles(pl.Series(texts, dtype=pl.String), ngram):
        for row, values in enumerate(np.split(part.hashes, part.first[1:])):
            sets[part.row + row].update(values.tolist())
    return sets


def keys(texts: list[str], params: NearDuplicateParams = PARAMS) -> np.ndarray:
    return signatures(pl.Series(texts, dtype=pl.String), params)


def kept(texts: list[str]) -> np.ndarray:
    """Whether each of these texts is no near-duplicate of an earlier one."""
    table = np.pad(keys(texts), ((0, 0), (1, 0)))  # with no keys of texts
    return judged([table], exact=False)[0].kept


def sentence(draws: random.Random, words: int) -> list[str]:
    return [f"{draws.choice('bcdfgh')}{draws.randrange(1500)}" for _ in range(words)]


def replaced(words: list[str], count: int, draws: random.Random) -> list[str]:
    words = list(words)
    for place in draws.sample(range(len(words)), count):
        words[place] = "new" + str(draws.randrange(10**9))
    return words


@given(st.lists(TEXT, min_size=1, max_size=6), st.integers(1, 6))
def test_shingles_are_shared_as_in_plain_sets(texts, ngram):
    ours = hashed(texts, ngram)
    theirs = [reference(text, ngram) for text in texts]
    for one, its in zip(ours, theirs, strict=True):
        for other, others in zip(ours, theirs, strict=True):
            assert len(one & other) == len(its & others)


def test_words_differ_in_each_of_their_first_bytes():
    word = "abcdefghijklmnopqrstuvwxyz012345"
    texts = [word[:length] for length in range(1, 33)]
    texts += [word[:at] + "9" + word[at + 1 :] for at in range(32)] + [word + "6", word + "67"]
    assert len(set(map(frozenset, hashed(texts, 1)))) == len(texts)
    one, other = hashed([word + "1", word + "2"], 1)
    assert one == other


@given(st.lists(TEXT | st.text(max_size=30), min_size=1, max_size=12), st.data())
def test_each_row_by_itself(texts, data):
    cut = data.draw(st.integers(0, len(texts)))
    order = data.draw(st.permutations(range(len(texts))))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(minhash, "BLOCK_BYTES", data.draw(st.integers(100, 400)))
        whole = keys(texts)
    assert (np.concatenate([keys(texts[:cut]), keys(texts[cut:])]) == whole).all()
    assert (keys([texts[row] for row in order]) == whole[list(order)]).all()


def test_a_long_text_is_the_same_beside_others():
    draws = random.Random(0)
    words = sentence(draws, 200_000)
    long = " ".join(words)
    changed = " ".join(replaced(words, 1000, draws))
    assert len(long) > 2 * minhash.BLOCK_BYTES
    alone = keys([long])
    assert (keys(["before", long, "after", changed])[1] == alone[0]).all()
    assert kept(["before", long, "after", changed]).tolist() == [
        True,
        True,
        True,
        False,
    ]


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        (
            "To be, or not to be: that is the question.",
            "to be or not to be\nTHAT is the question",
            True,
        ),
        ("Hello.", "hello", True),
        ("Hello", "Hello you", False),
        ("!!!", "???", False),
        ("", "...", False),
        ("你好，世界。今天天气很好。", "你好世界今天天气很好", True),
        ("你好，世界。今天天气很好。", "你好，世界。明天天气很好。", False),
        ("a" * 10, "a" * 11, False),
        ("\0\0", "\0", False),
        ("“", "—", False),
    ],
)
def test_case_and_punctuation_do_not_count(one, other, alike):
    assert kept([one, other]).tolist() == [True, not alike]


def test_recall_and_precision_on_known_pairs():
    """Recall and precision on pairs of known similarity, between documents that nothing else is
    like."""
    draws = random.Random(1)
    originals = [sentence(draws, draws.randrange(60, 400)) for _ in range(600)]
    copies = [replaced(words, draws.randrange(1 + len(words) // 12), draws) for words in originals]
    sets = [reference(" ".join(words), 5) for words in originals + copies]
    similarity = np.array(
        [jaccard(one, other) for one, other in zip(sets[:600], sets[600:], strict=True)]
    )
    stays = kept([" ".join(words) for words in originals + copies])
    assert stays[:600].all()
    dropped = ~stays[600:]
    bands, rows = bands_and_rows(PARAMS.threshold, PARAMS.permutations)
    expected = 1 - (1 - similarity**rows) ** bands
    assert dropped[similarity >= 0.95].all()
    assert dropped[similarity >= 0.9].mean() > 0.9
    assert dropped[similarity < 0.65].mean() < 0.05
    assert not dropped[similarity < 0.5].any()
    for low, high in [(0.6, 0.75), (0.75, 0.85), (0.85, 0.95)]:
        chosen = (similarity >= low) & (similarity < high)
        assert chosen.sum() > 40
        assert abs(dropped[chosen].mean() - expected[chosen].mean()) < 0.12


def test_signatures_estimate_the_similarity():
    """The share of equal numbers is the Jaccard similarity, within four standard errors."""
    draws = random.Random(2)
    orders = 512
    for share in (0.005, 0.02, 0.06):
        words = sentence(draws, 500)
        texts = [" ".join(words), " ".join(replaced(words, int(share * 500), draws))]
        least = minhash.least_shingles(pl.Series(texts), 5, orders)
        true = jaccard(*(reference(text, 5) for text in texts))
        error = (true * (1 - true) / orders) ** 0.5
        assert abs((least[:, 0] == least[:, 1]).mean() - true) < 4 * error


def test_a_copy_of_a_dropped_document_may_stay():
    draws = random.Random(3)
    first = sentence(draws, 300)
    second = replaced(first, 2, draws)
    far = replaced(second, 60, draws)
    texts = [" ".join(words) for words in (first, second, far, first)]
    assert kept(texts).tolist() == [True, False, True, False]


@pytest.mark.parametrize(
    ("threshold", "permutations", "division"),
    [
        (0.5, 128, (25, 5)),
        (0.7, 128, (14, 9)),
        (0.8, 128, (9, 13)),
        (0.9, 128, (5, 25)),
        (0.8, 256, (17, 15)),
    ],
)
def test_the_division_is_that_of_datasketch(threshold, permutations, division):
    assert bands_and_rows(threshold, permutations) == division


def test_the_same_numbers_in_every_process():
    """Which documents stay must not depend on the machine; all of it is arithmetic of integers."""
    texts = ["the quick brown fox jumps over the lazy dog", "Über 你好", ""]
    code = (
        "import sys, polars as pl\n"
        "from tokenmill.data.minhash import NearDuplicateParams, signatures\n"
        "params = NearDuplicateParams(enabled=True, threshold=0.8, permutations=128, ngram=5)\n"
        "print(signatures(pl.Series(sys.argv[1:]), params).sum(axis=1).tolist())"
    )
    environment = {"PYTHONPATH": str(Path(minhash.__file__).parents[2]), "PYTHONHASHSEED": "7"}
    command = [sys.executable, "-c", code, *texts]
    output = subprocess.run(
        command, capture_output=True, text=True, check=True, env=environment
    ).stdout
    assert json.loads(output) == [5901380499623272213, 5019651197574687965, 10330213396918842423]
    assert keys(texts).sum(axis=1).tolist() == json.loads(output)
