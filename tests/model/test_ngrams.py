"""`speedrun`: `modern` with rows for pairs and triples, none of which reaches before its text."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.model.small import small_config, with_noise
from tokenmill.model.config import FACTS
from tokenmill.model.gpt import GPT, KVCache, build
from tokenmill.model.modern import NanoChat
from tokenmill.model.ngrams import ROWS, row_of, rows_of_ngrams
from tokenmill.model.speedrun import NGramChat

LARGEST = 1 << 24
"""The largest vocabulary of a model."""
VOCABULARY = 1000
"""One whose pairs have fewer rows than there are."""


def drawn(vocab_size: int = VOCABULARY) -> GPT:
    """A model whose rows are random, as wide as its embeddings."""
    model = build(small_config("speedrun", vocab_size=vocab_size), seed=1)
    return with_noise(model, seed=2, scale=0.2).eval()


def some_ids(seed: int, vocab_size: int = VOCABULARY) -> torch.Tensor:
    return torch.randint(vocab_size, (2, 12), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("vocab_size", [23, VOCABULARY])
def test_rows_of_zero_give_the_logits_of_modern(vocab_size: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(FACTS, "modern", FACTS["speedrun"])
    plain = build(small_config("modern", vocab_size=vocab_size), seed=3)
    ours = build(small_config("speedrun", vocab_size=vocab_size), seed=3)
    assert isinstance(ours, NGramChat)
    assert isinstance(plain, NanoChat)
    for name, parameter in plain.named_parameters():
        assert torch.equal(parameter, ours.get_parameter(name)), name
    assert not ours.pairs.weight.any()
    assert not ours.triples.weight.any()
    ids_BT = some_ids(0, vocab_size)
    assert torch.equal(ours(ids_BT), plain(ids_BT))
    torch.nn.init.normal_(ours.triples.weight)
    assert not torch.equal(ours(ids_BT), plain(ids_BT))


def test_probabilities_are_of_all_tokens_and_sum_to_one():
    probabilities_BTV = drawn()(some_ids(0)).softmax(-1)
    assert probabilities_BTV.shape == (2, 12, VOCABULARY)
    torch.testing.assert_close(probabilities_BTV.sum(-1), torch.ones(2, 12))


@pytest.mark.parametrize("vocab_size", [23, VOCABULARY])
def test_a_later_id_changes_no_earlier_logit(vocab_size: int):
    model = drawn(vocab_size)
    ids_BT = some_ids(0, vocab_size)
    with torch.no_grad():
        before_BTV = model(ids_BT)
        for t in range(1, 12):
            other_BT = ids_BT.clone()
            other_BT[:, t] = (other_BT[:, t] + 1) % vocab_size
            after_BTV = model(other_BT)
            assert torch.equal(after_BTV[:, :t], before_BTV[:, :t])
            assert not torch.equal(after_BTV[:, t:], before_BTV[:, t:])


@given(starts=st.sets(st.integers(1, 11)), vocab_size=st.sampled_from([23, 29, 200, VOCABULARY]))
def test_no_ngram_crosses_the_start_of_its_text(starts: set[int], vocab_size: int):
    """Each text in a sequence has the rows that it has alone, whatever is before it."""
    edges = [0, *sorted(starts), 12]
    starts_T = torch.tensor([max(e for e in edges if e <= t) for t in range(12)])
    ids_BT = some_ids(len(starts), vocab_size)
    none_B2 = torch.full((2, 2), vocab_size)
    together = rows_of_ngrams(
        ids_BT, none_B2, vocab_size=vocab_size, starts_BT=starts_T.expand(2, -1)
    )
    for start, stop in itertools.pairwise(edges):
        alone = rows_of_ngrams(ids_BT[:, start:stop], none_B2, vocab_size=vocab_size)
        for rows_BT, expected_BT in zip(together, alone, strict=True):
            assert torch.equal(rows_BT[:, start:stop], expected_BT)


def test_an_id_before_the_start_changes_no_logit():
    model = drawn()
    starts_BT = torch.tensor([0] * 5 + [5] * 7).expand(2, -1)
    ids_BT = some_ids(0)
    with torch.no_grad():
        before_BTV = model(ids_BT, starts_BT=starts_BT)
        for t in range(5):
            other_BT = ids_BT.clone()
            other_BT[:, t] = (other_BT[:, t] + 1) % VOCABULARY
            after_BTV = model(other_BT, starts_BT=starts_BT)
            assert torch.equal(after_BTV[:, 5:], before_BTV[:, 5:])
            assert not torch.equal(after_BTV[:, t], before_BTV[:, t])


def every_ngram(vocab_size: int, length: int) -> list[torch.Tensor]:
    earlier = [torch.arange(vocab_size + 1)] * (length - 1)
    grid = torch.meshgrid(*earlier, torch.arange(vocab_size), indexing="ij")
    return [ids.flatten() for ids in grid]


@pytest.mark.parametrize(("vocab_size", "length"), [(2, 2), (71, 2), (127, 2), (2, 3), (24, 3)])
def test_ngrams_of_a_small_vocabulary_share_no_row(vocab_size: int, length: int):
    rows = row_of(every_ngram(vocab_size, length), vocab_size=vocab_size)
    assert 0 <= rows.min() <= rows.max() < ROWS
    assert len(rows.unique()) == len(rows)


@pytest.mark.parametrize(("vocab_size", "length"), [(512, 2), (1024, 2), (71, 3)])
def test_hashes_spread_over_all_rows(vocab_size: int, length: int):
    """At least as evenly as a random draw; also those that begin or end with the same id."""
    ngrams = every_ngram(vocab_size, length)
    rows = row_of(ngrams, vocab_size=vocab_size)
    assert rows.bincount(minlength=ROWS).float().var() <= len(rows) / ROWS
    for place in (0, -1):
        alike = rows[ngrams[place] == 1]
        assert len(alike.unique()) > 0.6 * min(len(alike), ROWS)


@given(ids=st.lists(st.integers(LARGEST - 9, LARGEST - 1), min_size=2, max_size=3))
def test_the_largest_vocabulary_does_not_overflow(ids: list[int]):
    """The row is that of exact integers."""
    number = 0
    for each in ids:
        number = (number + each) * 1_327_217_885 % 2**31
    found = row_of([torch.tensor([each]) for each in ids], vocab_size=LARGEST)
    assert found.tolist() == [number >> 17]
    assert (2**31 - 1 + LARGEST) * 1_327_217_885 < 2**63


def test_a_cache_keeps_two_ids_of_its_texts():
    model = drawn()
    ids_BT = torch.cat([some_ids(0), some_ids(1)])
    expected_BTV = model(ids_BT)
    with torch.inference_mode():
        cache = KVCache(model.config, texts=4, max_length=12, device=model.device)
        for ids in (some_ids(2).repeat(2, 1), ids_BT[:, :1]):
            cache.clear()
            model(ids, cache=cache)
        model(ids_BT[:, 1:2], cache=cache)
        cache.select([2, 0])
        got_BTV = model(ids_BT[[2, 0], 2:3], cache=cache)
    torch.testing.assert_close(got_BTV, expected_BTV[[2, 0], 2:3], rtol=1e-4, atol=1e-4)
