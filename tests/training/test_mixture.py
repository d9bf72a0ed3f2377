"""`data.mixture`: an epoch sees each source as many times as its weight says; what it sees follows
from seed and epoch alone."""

import signal
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.training.fork_server import ForkServer
from tests.training.tiny import (
    CONTEXT,
    MODEL,
    digest,
    model_config,
    run,
    sequences_in,
    text_workload,
    train_params,
    write_tokens,
)
from tokenmill.core.errors import UserError
from tokenmill.formats.mixture import seen_in_words, seen_of, stretches_of
from tokenmill.formats.token_file import MAX_SOURCES, SourceRun
from tokenmill.model.config import ModelParams
from tokenmill.training.job import training_job
from tokenmill.training.schedule import Workload


def runs_of(*tokens: int, names: str = "abcdefgh") -> list[SourceRun]:
    """A run of so many tokens for each name."""
    return [
        SourceRun(source=name, documents=1, tokens=count, bytes=count)
        for name, count in zip(names, tokens, strict=False)
    ]


def work_on(
    runs: list[SourceRun], mixture: dict[str, float], *, context: int = 4, seed: int = 0
) -> Workload:
    return text_workload(
        tokens=sum(run.tokens for run in runs),
        context_length=context,
        per_step=3,
        seed=seed,
        stretches=stretches_of(runs, mixture, context),
    )


@given(
    tokens=st.lists(st.integers(10, 90), min_size=1, max_size=5),
    weights=st.lists(
        st.sampled_from([0, 0.2, 0.5, 1, 2, 3.7]) | st.floats(0, 9), min_size=5, max_size=5
    ),
    context=st.integers(2, 8),
    seed=st.integers(0, 2**32 - 1),
)
def test_tokens_of_a_source_are_its_weight(
    tokens: list[int], weights: list[float], context: int, seed: int
):
    """Within one sequence in each epoch; and no sequence, nor its targets, leaves its source."""
    mixture = dict(zip("abcde", weights, strict=True))
    mixture = {name: mixture[name] for name in "abcde"[: len(tokens)]}
    if not any(mixture.values()) or all(weight == 1 for weight in mixture.values()):
        mixture["a"] = 0.5
    runs = runs_of(*tokens)
    work = work_on(runs, mixture, context=context, seed=seed)
    at = np.cumsum([0, *tokens])
    for epoch in range(4):
        starts = np.array(sequences_in(work, epoch))
        assert len(starts) == work.sequences
        first = np.searchsorted(at, starts, side="right") - 1
        last = np.searchsorted(at, starts + context, side="right") - 1
        found = Counter(first.tolist())
        for number, (name, count) in enumerate(zip("abcde", tokens, strict=False)):
            if mixture[name] == 1:  # cut together with neighbours that are seen once, too
                assert abs(found[number] - count / context) <= 2
                continue
            whole = (count - 1) // context
            assert abs(found[number] - mixture[name] * whole) <= 1
            assert (found[number] > 0) == (mixture[name] > 0)
            assert (last[first == number] == number).all()
        assert {"abcde"[number] for number in [*first, *last]} <= {
            name for name, weight in mixture.items() if weight
        }


@pytest.mark.parametrize("parts", [2, 3, 5])
def test_a_fraction_sees_another_part_in_each_epoch(parts: int):
    work = work_on(runs_of(81, 121), {"b": 1 / parts})
    whole = 30 // parts
    seen = [{at for at in sequences_in(work, epoch) if at >= 81} for epoch in range(2 * parts)]
    assert {len(one) for one in seen} == {whole}
    assert set().union(*seen[:parts]) == set(range(81, 81 + 30 * 4, 4))
    # Then again, cut elsewhere
    again = set().union(*seen[parts:])
    assert len(again) == 30
    assert len({(at - 81) % 4 for at in again - {max(again)}}) == 1


def test_twice_is_each_sequence_and_the_same_text_cut_elsewhere():
    runs = runs_of(81, 121)
    work = work_on(runs, {"b": 2}, seed=1)
    alone = text_workload(tokens=121, context_length=4, per_step=3, seed=1)
    for epoch in range(3):
        found = sorted(at - 81 for at in sequences_in(work, epoch) if at >= 81)
        twice = [*sequences_in(alone, 2 * epoch), *sequences_in(alone, 2 * epoch + 1)]
        assert found == sorted(twice)


def test_orders_follow_from_seed_and_epoch():
    def order(epoch: int, seed: int) -> tuple[int, ...]:
        return tuple(sequences_in(work_on(runs_of(81, 121), {"b": 0.5}, seed=seed), epoch))

    known = {(epoch, seed): order(epoch, seed) for epoch in range(3) for seed in range(3)}
    assert len(set(known.values())) == 9
    work = work_on(runs_of(81, 121), {"b": 0.5}, seed=2)
    for epoch in (2, 0, 1, 2):
        assert tuple(sequences_in(work, epoch)) == known[epoch, 2]
    assert all(list(one) != sorted(one) for one in known.values())


@pytest.mark.parametrize("mixture", [None, {}, {"a": 1.0}, {"a": 1.0, "b": 1.0}])
def test_all_seen_once_is_no_mixture(tmp_path: Path, mixture: dict[str, float] | None):
    """It is the same run with the same sequences, whatever the sources are."""
    train = train_params()
    model = ModelParams.model_validate(MODEL)
    plain = write_tokens(tmp_path / "plain", sequences=19)
    named = write_tokens(tmp_path / "named", sequences=19, sources=("a", "b"))
    before = training_job(model, train, plain, tmp_path)
    after = training_job(model, train, named, tmp_path, mixture=mixture)
    assert after.manifest.fingerprint == before.manifest.fingerprint
    assert not after.work.stretches
    assert [sequences_in(after.work, epoch) for epoch in range(3)] == [
        sequences_in(before.work, epoch) for epoch in range(3)
    ]
    assert after.work.seen == []


def test_another_mixture_is_another_run(tmp_path: Path):
    """The names of sources change nothing; their weights and where they end do."""
    model = ModelParams.model_validate(MODEL)

    def fingerprint(folder: str, **mixture: float) -> str:
        job = training_job(model, train_params(), tmp_path / folder, tmp_path, mixture=mixture)
        assert job.manifest.mixture == mixture
        return job.manifest.fingerprint

    write_tokens(tmp_path / "ab", sequences=19, sources=("a", "b"))
    write_tokens(tmp_path / "cd", sequences=19, sources=("c", "d"))
    found = [fingerprint("ab", b=weight) for weight in (1, 2, 0.5, 0)]
    assert len(set(found)) == 4
    assert fingerprint("ab", a=2) not in found
    assert fingerprint("cd", d=2) == found[1]


def test_a_run_counts_the_sequences_of_its_mixture():
    runs = runs_of(81, 121)
    stretches = stretches_of(runs, {"a": 0, "b": 2.5}, CONTEXT)
    work = Workload(model_config(), train_params(), tokens=202, stretches=stretches)
    assert work.sequences == round(2.5 * 15) == 38
    assert work.steps_per_epoch == 10
    assert work.tokens_per_epoch == 38 * CONTEXT
    assert [(one.source, one.seen) for one in work.seen] == [("a", 0), ("b", 38 * CONTEXT)]


def test_what_is_seen_is_said_by_source():
    runs = runs_of(41, 41, 81, 41, names="xaay") + runs_of(41, names="b")
    seen = seen_of(stretches_of(runs, {"a": 2, "b": 0.5}, 4), 4)
    assert [(one.source, one.weight, one.tokens, one.seen) for one in seen] == [
        ("a", 2, 122, 2 * 30 * 4),
        ("b", 0.5, 41, 5 * 4),
        (None, 1, 82, 20 * 4),
    ]
    said = seen_in_words(seen)
    assert "a x 2 = 240 tokens" in said
    assert "(71%)" in said
    many = [SourceRun(source=f"s{n:02}", documents=1, tokens=50, bytes=1) for n in range(30)]
    said = seen_in_words(seen_of(stretches_of(many, {f"s{n:02}": 2 for n in range(29)}, 4), 4))
    assert "19 more" in said
    assert said.endswith("others x 1 = 48 tokens (2%)")


@pytest.mark.parametrize(
    ("runs", "mixture", "message"),
    [
        (runs_of(81, 81), {"c": 2.0}, r"data\.mixture\.c is no source .* are a, b"),
        (runs_of(81, 81), {"a": 2.0, "c": 1.0}, r"data\.mixture\.c is no source"),
        (runs_of(81, 81), {"a": 0.0, "b": 0.0}, "weight 0"),
        (runs_of(81, 4, 81), {"a": 2.0, "b": 3.0}, "b has 4 tokens .*no sequence fits"),
        (runs_of(81, 4, 81), {"a": 2.0, "c": 3.0}, "b has 4 tokens"),
        ([SourceRun(source=None, documents=1, tokens=99, bytes=9)], {"a": 2.0}, "told apart"),
    ],
)
def test_a_mixture_that_cannot_be_is_refused(
    runs: list[SourceRun], mixture: dict[str, float], message: str
):
    with pytest.raises(UserError, match=message):
        stretches_of(runs, mixture, 4)


def test_what_is_too_short_may_be_left_out_or_be_beside_more():
    runs = runs_of(81, 4, 81, 4)
    assert len(stretches_of(runs, {"a": 2, "b": 0, "d": 0}, 4)) == 4
    assert [one.tokens for one in stretches_of(runs, {"a": 2}, 4)] == [81, 89]


def test_tokens_of_a_thousand_sources_are_mixed():
    many = [SourceRun(source=f"s{n}", documents=1, tokens=9, bytes=1) for n in range(MAX_SOURCES)]
    mixture = {f"s{n}": 2.0 for n in range(0, MAX_SOURCES, 2)}
    assert work_on(many, mixture).sequences == 2 * (2 + 1) * MAX_SOURCES // 2


MIXED: dict[str, Any] = {
    "epochs": 6,
    "log_every_steps": 1,
    "batch_size": 2,
    "mixture": {"a": 0.5, "b": 2.0},
    "runtime": {"checkpoint": {"every_steps": 5}},
}


def test_a_killed_mixed_run_ends_in_the_same_bytes(tmp_path: Path, fork_server: ForkServer):
    tokens = write_tokens(tmp_path / "tokens", sequences=40, sources=("a", "b"))
    quiet = fork_server.start(tmp_path / "quiet", tokens, **MIXED)
    assert quiet.wait() == 0
    assert "a x 0.5 = 80 tokens" in quiet.said
    killed = fork_server.start(tmp_path / "killed", tokens, **MIXED)
    killed.until(lambda: len(killed.checkpoints()) > 1)
    killed.stop(signal.SIGKILL)
    again = fork_server.start(tmp_path / "killed", tokens, **MIXED)
    assert again.wait() == 0
    assert "continuing from step " in again.said
    assert digest(again.root / "model") == digest(quiet.root / "model")


def test_more_epochs_of_a_mixture_continue(here: Path):
    tokens = write_tokens(here / "tokens", sequences=40, sources=("a", "b"))
    mixture = {"a": 0.5, "b": 2.0}
    short = run(tokens, here / "model", epochs=1, mixture=mixture)
    assert short.state.epochs[-1].tokens == (10 + 40) * CONTEXT
    longer = run(tokens, here / "model", epochs=3, mixture=mixture)
    assert longer.manifest.fingerprint == short.manifest.fingerprint
    assert longer.state.epoch_weights[0] == short.state.epoch_weights[0]
    other = run(tokens, here / "model", epochs=3, mixture={"a": 0.5})
    assert other.state.epoch_weights[0] != short.state.epoch_weights[0]
