"""Sequences of a split. Tokens are their own positions, so that coverage is an equality of sets."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tokenmill.core.errors import UserError
from tokenmill.formats.measured import evenly_spread
from tokenmill.formats.token_blocks import CompressedTokens, compressed_blocks, write_blocks
from tokenmill.model import sequences as module
from tokenmill.model.ops import IGNORED
from tokenmill.model.sequences import Sequences, WholeText, place_tokens, sequences_anywhere

CPU = torch.device("cpu")


def sequences_of(count: int, *, left_over: int = 0) -> Sequences:
    tokens = torch.arange(count * 4 + 1 + left_over, dtype=torch.int32)
    return Sequences(tokens.unfold(0, 5, 4), device=CPU)


@pytest.mark.parametrize("left_over", [0, 1, 3])
def test_all_sequences_together_hold_every_token_once(left_over: int):
    sequences = sequences_of(13, left_over=left_over)
    assert sequences.count == 13
    inputs_BT, targets_BT = sequences.gather(np.random.default_rng(0).permutation(13))
    assert sorted(inputs_BT.flatten().tolist()) == list(range(13 * 4))
    assert sorted(targets_BT.flatten().tolist()) == list(range(1, 13 * 4 + 1))


def test_targets_are_the_inputs_shifted_by_one():
    inputs_BT, targets_BT = sequences_of(13).gather(np.array([3, 0, 12]))
    assert inputs_BT[:, 0].tolist() == [12, 0, 48]
    assert torch.equal(targets_BT, inputs_BT + 1)


def test_int32_on_disk_becomes_int64_for_the_model():
    inputs_BT, targets_BT = sequences_of(3).gather(np.array([1]))
    assert inputs_BT.dtype == targets_BT.dtype == torch.int64
    assert inputs_BT.shape == targets_BT.shape == (1, 4)


def test_cutting_into_sequences_copies_no_token():
    tokens = torch.arange(100, dtype=torch.int32)
    sequences = Sequences(tokens.unfold(0, 8, 7), device=CPU)
    tokens[7:14] = 99
    assert sequences.gather(np.array([1]))[0].tolist() == [[99] * 7]


class Copies(TorchDispatchMode):
    """Notes of each copy to another device whether it is synchronous."""

    def __init__(self) -> None:
        super().__init__()
        self.synchronous: list[bool] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if (
            func is torch.ops.aten._to_copy.default
            and kwargs.get("device", args[0].device) != args[0].device
        ):
            self.synchronous.append(not kwargs.get("non_blocking"))
        return func(*args, **kwargs or {})


@pytest.mark.parametrize("place", ["cpu", "meta"])
def test_copies_to_another_device_are_asynchronous(place: str):
    """The meta device stands for a GPU; a batch takes one asynchronous copy, wherever the tokens
    are."""
    sequences = Sequences(
        torch.arange(53, device=place).unfold(0, 5, 4), device=torch.device("meta")
    )
    with Copies() as copies:
        inputs_BT, targets_BT = sequences.gather(np.array([3, 0, 12]))
    assert inputs_BT.device == targets_BT.device == torch.device("meta")
    assert inputs_BT.shape == targets_BT.shape == (3, 4)
    assert copies.synchronous == [False]


@pytest.mark.parametrize(("tokens", "count"), [(5, 1), (8, 4), (9, 5)])
def test_a_sequence_needs_a_target_for_its_last_token(tokens: int, count: int):
    ids = torch.arange(tokens)
    assert sequences_anywhere(ids, context_length=4, device=CPU).count == count


@pytest.mark.parametrize(
    ("sequences", "at_most"), [(10, 3), (10, 10), (10, 99), (1, 5), (1000, 256)]
)
def test_evenly_spread_numbers_are_distinct_and_evenly_apart(sequences: int, at_most: int):
    chosen = evenly_spread(sequences, at_most)
    assert len(set(chosen.tolist())) == min(sequences, at_most)
    assert chosen.min() == 0
    assert chosen.max() < sequences
    gaps = np.diff([*chosen, sequences])
    assert gaps.max() - gaps.min() <= 1


@pytest.mark.parametrize(("tokens", "count"), [(2, 1), (9, 2), (10, 3), (12, 3)])
def test_every_token_of_a_whole_text_is_a_target_once(tokens: int, count: int):
    text = WholeText(np.arange(tokens, dtype=np.int32), context_length=4, device=CPU)
    everything = np.arange(text.count)
    inputs_BT, targets_BT = text.gather(everything)
    assert text.count == count
    assert targets_BT[targets_BT != IGNORED].tolist() == list(range(1, tokens))
    assert inputs_BT[targets_BT != IGNORED].tolist() == list(range(tokens - 1))
    assert inputs_BT.min() >= 0
    assert text.weight(everything) == tokens - 1
    assert text.weight(everything[:-1]) == 4 * (count - 1)


@pytest.mark.parametrize("placement", ["mmap", "memory", "device"])
def test_tokens_are_the_same_wherever_they_are_placed(placement: str):
    ids = np.arange(100, dtype=np.int32)
    ids.flags.writeable = False
    tokens, place = place_tokens(ids, placement, CPU)
    assert place == placement
    assert isinstance(tokens, torch.Tensor)
    assert tokens.tolist() == ids.tolist()
    assert (tokens.data_ptr() == ids.ctypes.data) == (placement == "mmap")


@pytest.mark.parametrize(
    ("placement", "where"), [("mmap", "cpu"), ("memory", "cpu"), ("device", "meta")]
)
def test_one_placement_is_on_the_device(placement: str, where: str):
    """The meta device stands for a GPU."""
    tokens, _ = place_tokens(np.arange(9, dtype=np.int32), placement, torch.device("meta"))
    assert isinstance(tokens, torch.Tensor)
    assert tokens.device.type == where


@pytest.mark.parametrize(
    ("gpu", "host", "place"),
    [(4001, 0, "device"), (4000, 801, "memory"), (4000, 800, "mmap")],
)
def test_the_fastest_place_with_room_is_chosen(
    gpu: int, host: int, place: str, monkeypatch: pytest.MonkeyPatch
):
    """400 bytes of tokens take at most a tenth of a GPU's free memory, or half of the host's."""
    huge = 1 << 40
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (gpu, huge))
    memory = SimpleNamespace(available=host, total=huge)
    monkeypatch.setattr(module.psutil, "virtual_memory", lambda: memory)
    monkeypatch.setattr(torch.Tensor, "to", lambda tensor, _: tensor)
    ids = np.arange(100, dtype=np.int32)
    assert place_tokens(ids, "auto", torch.device("cuda"))[1] == place


def test_tokens_too_large_for_memory_stay_a_memory_map(monkeypatch: pytest.MonkeyPatch):
    ids = np.arange(100, dtype=np.int32)
    assert place_tokens(ids, "auto", CPU)[1] == "memory"
    assert place_tokens(ids, "auto", CPU, processes=2**60)[1] == "mmap", (
        "all of this machine hold them"
    )
    monkeypatch.setattr(module, "MAX_MEMORY_SHARE", 0.0)
    assert place_tokens(ids, "auto", CPU)[1] == "mmap"


@pytest.fixture
def compressed(tmp_path: Path) -> CompressedTokens:
    """The numbers from 0 on, in blocks."""
    ids = np.arange(40_000, dtype=np.int32)
    with (tmp_path / "train.zst").open("wb") as file:
        write_blocks(file, compressed_blocks(ids, "<u2"))
    return CompressedTokens(tmp_path / "train.zst", "<u2", len(ids))


@pytest.mark.parametrize("context", [1, 8, 20_000, 39_999])
def test_sequences_of_compressed_tokens_are_the_same(context: int, compressed: CompressedTokens):
    plain, packed = (
        sequences_anywhere(
            place_tokens(compressed, placement, CPU)[0], context_length=context, device=CPU
        )
        for placement in ("memory", "compressed")
    )
    assert plain.count == packed.count == 40_000 - context
    index = np.random.default_rng(context).integers(plain.count, size=5)
    for at_least in (0, 7):
        expected, found = (one.gather(index, at_least=at_least) for one in (plain, packed))
        assert all(map(torch.equal, expected, found))
        assert found[0][:5, 0].tolist() == index.tolist()


def test_compressed_tokens_go_to_memory_if_they_fit(
    compressed: CompressedTokens, monkeypatch: pytest.MonkeyPatch
):
    tokens, place = place_tokens(compressed, "auto", CPU)
    assert place == "memory"
    assert tokens[:].tolist() == list(range(40_000))
    monkeypatch.setattr(module, "MAX_MEMORY_SHARE", 0.0)
    assert place_tokens(compressed, "auto", CPU) == (compressed, "compressed")


def test_tokens_in_another_form_than_asked_for_are_refused(compressed: CompressedTokens):
    with pytest.raises(
        UserError, match=r"is mmap.* in compressed .* -sf unpack`, .* to compressed"
    ):
        place_tokens(compressed, "mmap", CPU)
    with pytest.raises(UserError, match=r"is compressed.* uncompressed; .* to mmap"):
        place_tokens(np.arange(9, dtype=np.int32), "compressed", CPU)


def test_rows_that_fill_up_a_batch_have_no_targets():
    sequences = Sequences(torch.arange(50).unfold(0, 11, 10), device=CPU)
    inputs_BT, targets_BT = sequences.gather(np.array([3, 1]), at_least=4)
    plain_inputs_BT, plain_targets_BT = sequences.gather(np.array([3, 1]))
    assert inputs_BT.shape == (4, 10)
    assert torch.equal(inputs_BT[:2], plain_inputs_BT)
    assert torch.equal(targets_BT[:2], plain_targets_BT)
    assert (targets_BT[2:] == IGNORED).all()
