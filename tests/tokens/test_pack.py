"""Clean text becomes token files and comes back unchanged; the bytes do not depend on how the work
is divided."""

import itertools
import json
import random
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import polars as pl
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.folders import contents
from tests.tokens.clean_text import PROSE, write_clean
from tests.tokens.packing import pack_here
from tokenmill.core.errors import UserError
from tokenmill.formats import shards
from tokenmill.formats.chat import plain, render_chat
from tokenmill.formats.store import ShardFile
from tokenmill.formats.token_file import SPLITS, Split, TokenMetadata, packed_dtype
from tokenmill.formats.token_row import open_tokens
from tokenmill.formats.tokenizer import END_OF_TEXT, RECORD, read_tokenizer
from tokenmill.tokens import corpus as corpus_module
from tokenmill.tokens import encoder
from tokenmill.tokens import pack as pack_module
from tokenmill.tokens.corpus import SplitMethod, SplitRule
from tokenmill.tokens.encoder import FRAGMENTS
from tokenmill.tokens.pack import packed_metrics
from tokenmill.tokens.params import TokenizeParams, TokenizerParams
from tokenmill.tokens.train_tokenizer import train_tokenizer
from tokenmill.tokens.unpack import unpack

Corpus = Callable[..., Path]
HASH = TokenizeParams(split="hash", val_fraction=0.3)
TAIL = TokenizeParams(split="tail", val_fraction=0.3)


def documents(tokens: Path, tokenizer_file: Path, split: Split) -> list[str]:
    """The texts of a .bin: decoded between its end-of-text ids."""
    tokenizer = read_tokenizer(tokenizer_file)
    ids = np.asarray(open_tokens(tokens, split))
    ends = np.flatnonzero(ids == tokenizer.eot_id)
    assert ends[-1] == len(ids) - 1
    return [
        tokenizer.decode(ids[a + 1 : b].tolist())
        for a, b in itertools.pairwise([-1, *ends.tolist()])
    ]


def round_trip(
    clean: Path, tokenizer_file: Path, work: Path, params: TokenizeParams
) -> dict[Split, list[str]]:
    metadata, _ = pack_here(clean, tokenizer_file, work / "packed", params)
    assert unpack(work / "packed", work / "tokens") == metadata
    texts: dict[Split, list[str]] = {
        split: documents(work / "tokens", tokenizer_file, split) for split in SPLITS
    }
    for split in SPLITS:
        assert metadata.split(split).documents == len(texts[split])
        assert metadata.split(split).bytes == sum(len(text.encode()) for text in texts[split])
    return texts


@pytest.mark.parametrize("kind", ["bpe", "char"])
def test_hash_split_gives_every_document_back(
    kind: str, prose: Path, request, tmp_path: Path
) -> None:
    texts = round_trip(prose, request.getfixturevalue(f"{kind}_file"), tmp_path, HASH)
    side = dict.fromkeys(texts["train"], "train") | dict.fromkeys(texts["val"], "val")
    assert texts["train"] == [text for text in PROSE if side[text] == "train"]
    assert texts["val"] == [text for text in PROSE if side[text] == "val"]
    assert 0.1 < len(texts["val"]) / len(PROSE) < 0.5


@pytest.mark.parametrize(
    "name", ["validation.txt", "data/val/1.txt", "A-valid.txt", "validation-00000-of-2.jsonl"]
)
def test_files_named_as_validation_text_are_held_out(
    corpus: Corpus, bpe_file: Path, tmp_path: Path, name: str
) -> None:
    sources = ["train.txt", name, "evaluation.txt", name, "value.txt"]
    clean = corpus(PROSE[:5], sources=sources)
    params = TokenizeParams(split="auto", val_fraction=0.3)
    assert round_trip(clean, bpe_file, tmp_path, params)["val"] == [PROSE[1], PROSE[3]]


def test_the_split_is_chosen_once(prose: Path, bpe_file: Path, tmp_path: Path, monkeypatch) -> None:
    """Choosing reads names and ids of each shard once; the fast encoder is tried on some texts."""
    columns: list[tuple[str, ...]] = []
    read = shards.documents

    def watched(shard: ShardFile, wanted: tuple[str, ...] = ("text",)) -> Iterator[pl.DataFrame]:
        columns.append(tuple(wanted))
        return read(shard, wanted)

    monkeypatch.setattr(shards, "documents", watched)
    params = TokenizeParams(split="auto", val_fraction=0.3)
    assert pack_here(prose, bpe_file, tmp_path / "packed", params)[1] == "hash"
    assert sorted(set(columns)) == [("source", "id"), ("text",), ("text", "source", "id")]
    assert columns.count(("source", "id")) == len(shards.shards(prose))


@pytest.mark.parametrize("source", ["a.txt", "val/a.txt"])
def test_auto_is_hash_where_no_name_tells_the_splits_apart(
    corpus: Corpus, bpe_file: Path, source: str, tmp_path
) -> None:
    clean = corpus(PROSE, sources=[source] * len(PROSE))
    for split in ("auto", "hash"):
        pack_here(clean, bpe_file, tmp_path / split, TokenizeParams(split=split, val_fraction=0.3))
    assert contents(tmp_path / "auto") == contents(tmp_path / "hash")


def test_few_long_documents_are_split_inside(
    corpus: Corpus, bpe_file: Path, tmp_path: Path
) -> None:
    texts = [
        " ".join(f"{author} wrote {number}." for number in range(300))
        for author in ("Ann", "Bo", "Cy")
    ]
    back = round_trip(
        corpus(texts), bpe_file, tmp_path, TokenizeParams(split="auto", val_fraction=0.1)
    )
    assert [head + tail for head, tail in zip(back["train"], back["val"], strict=True)] == texts
    for text, held in zip(texts, back["val"], strict=True):
        assert held.startswith(" ")
        assert 0.09 < len(held) / len(text) <= 0.1


def test_few_short_documents_are_split_at_the_tail(
    corpus: Corpus, bpe_file: Path, tmp_path: Path
) -> None:
    texts = [f"text {number}" for number in range(3)]
    back = round_trip(
        corpus(texts), bpe_file, tmp_path, TokenizeParams(split="auto", val_fraction=0.1)
    )
    assert "".join(back["train"] + back["val"]) == "".join(texts)
    assert back["val"] == [" 2"]


@pytest.mark.parametrize("kind", ["bpe", "char"])
def test_tail_split_cuts_at_the_character(kind: str, prose: Path, request, tmp_path: Path) -> None:
    texts = round_trip(prose, request.getfixturevalue(f"{kind}_file"), tmp_path, TAIL)
    everything = "".join(PROSE)
    edge = int(len(everything) * (1 - 0.3))
    assert "".join(texts["train"]) == everything[:edge]
    assert "".join(texts["val"]) == everything[edge:]
    assert len(texts["train"]) + len(texts["val"]) == len(PROSE) + 1  # one is cut in two


def test_tail_split_between_two_documents_cuts_none(
    corpus: Corpus, bpe_file: Path, tmp_path: Path
) -> None:
    half = TokenizeParams(split="tail", val_fraction=0.5)
    assert round_trip(corpus(["ab", "cd"]), bpe_file, tmp_path, half) == {
        "train": ["ab"],
        "val": ["cd"],
    }
    assert round_trip(corpus(["abcd"]), bpe_file, tmp_path, half) == {
        "train": ["ab"],
        "val": ["cd"],
    }


def test_tail_split_between_segments_of_a_long_document(
    corpus: Corpus, bpe_file, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(corpus_module, "SEGMENT_CHARS", 1)
    half = TokenizeParams(split="tail", val_fraction=0.5)
    assert round_trip(corpus(["ab cd"]), bpe_file, tmp_path, half) == {
        "train": ["ab"],
        "val": [" cd"],
    }


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    texts=st.lists(
        st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=4).map(plain), max_size=8)
        .map("".join)
        .filter(bool),
        max_size=12,
    ),
    kind=st.sampled_from(["bpe", "char"]),
    params=st.sampled_from([HASH, TAIL]),
)
def test_any_unicode_comes_back(
    texts, kind, params, bpe_file: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    work = tmp_path_factory.mktemp("any")
    texts = [*PROSE[:20], *texts]
    clean = write_clean(work / "clean", texts, row_group_bytes=600)
    if kind == "char":
        bpe_file = work / "char.json"
        train_tokenizer(clean, bpe_file, TokenizerParams(type="char", vocab_size=1, sample_bytes=1))
    back = round_trip(clean, bpe_file, work, params)
    if params is HASH:
        assert sorted(back["train"] + back["val"]) == sorted(texts)
    else:
        assert "".join(back["train"] + back["val"]) == "".join(texts)


def test_text_that_spells_end_of_text_ends_nothing(
    corpus: Corpus, bpe_file: Path, tmp_path: Path
) -> None:
    texts = [f"{END_OF_TEXT} number {i} {END_OF_TEXT}{END_OF_TEXT}" for i in range(30)]
    back = round_trip(corpus(texts), bpe_file, tmp_path, HASH)
    assert sorted(back["train"] + back["val"]) == sorted(texts)


def test_same_tokens_however_the_work_is_divided(
    prose: Path, corpus: Corpus, bpe_file, tmp_path, monkeypatch
) -> None:
    for params in (HASH, TAIL):
        pack_here(prose, bpe_file, tmp_path / "packed", params)
        unpack(tmp_path / "packed", tmp_path / "a")
        with monkeypatch.context() as patch:
            patch.setattr(corpus_module, "SEGMENT_CHARS", 20)
            patch.setattr(pack_module, "BATCH_BYTES", 100)
            pack_here(
                corpus(PROSE, shard_bytes=900, row_group_bytes=300),
                bpe_file,
                tmp_path / "other",
                params,
            )
        unpack(tmp_path / "other", tmp_path / "b")
        for name in ("train.bin", "val.bin"):
            assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_reference_encoder_packs_the_same_bytes(
    prose: Path, bpe_file, tmp_path, monkeypatch, capsys
) -> None:
    pack_here(prose, bpe_file, tmp_path / "fast", HASH)
    monkeypatch.setattr(
        encoder, "build_gigatoken", lambda _: lambda _: (np.zeros(0), np.zeros(1000, int))
    )
    pack_here(prose, bpe_file, tmp_path / "slow", HASH)
    assert contents(tmp_path / "fast") == contents(tmp_path / "slow")
    assert "slower than gigatoken, because the two disagree" in capsys.readouterr().out


def test_new_document_moves_no_other_to_the_other_split(corpus, bpe_file, tmp_path: Path) -> None:
    few = [f"document number {i}" for i in range(200)]
    many = few + [f"another {i}" for i in range(200)] + few[:100]
    random.Random(3).shuffle(many)
    before = round_trip(corpus(few), bpe_file, tmp_path / "few", HASH)
    after = round_trip(corpus(many), bpe_file, tmp_path / "many", HASH)
    for split in SPLITS:
        assert set(before[split]) <= set(after[split])
    assert not set(after["train"]) & set(after["val"])
    assert len(after["train"]) + len(after["val"]) == len(many)


def test_document_of_many_batches_has_one_end(
    corpus: Corpus, bpe_file: Path, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr(pack_module, "BATCH_BYTES", 50_000)
    long = " ".join(map(str, range(100_000)))
    texts = ["short", long, "also short"]
    back = round_trip(
        corpus(texts), bpe_file, tmp_path, TokenizeParams(split="tail", val_fraction=0.5)
    )
    edge = int(sum(map(len, texts)) * 0.5)
    assert back["train"] == ["short", long[: edge - 5]]
    assert back["val"] == [long[edge - 5 :], "also short"]


def test_fifty_thousand_tiny_documents(corpus: Corpus, bpe_file: Path, tmp_path: Path) -> None:
    texts = [f"no {i}" if i % 5 else "a" for i in range(50_000)]
    back = round_trip(corpus(texts), bpe_file, tmp_path, TAIL)
    assert "".join(back["train"] + back["val"]) == "".join(texts)
    assert len(back["train"] + back["val"]) - len(texts) in (0, 1)  # one may be cut in two


def test_batches_stay_small_whatever_the_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pack_module, "BATCH_BYTES", 1000)
    texts = ["word " * 21, "", "short", "word " * 10, "x" * 99] * 20
    batches = list(pack_module._cut(pl.Series(texts)))
    assert max(sum(map(len, batch)) for batch, _ in batches) < 1000 + 105
    assert sum(int(ends.sum()) for _, ends in batches) == len(texts)
    assert [text for batch, _ in batches for text in batch] == texts


@pytest.mark.parametrize("method", ["hash", "names", "ends", "tail"])
def test_nothing_of_a_row_group_is_held_while_the_next_is_read(
    method: SplitMethod, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[weakref.ref[Any]] = []

    def read(number: int) -> pl.DataFrame:
        assert not any(one() is not None for one in held)
        texts = [f"{number} {row} ".ljust(100, "x") for row in range(50)]
        columns = {"text": texts, "source": ["val/a", "b"] * 25, "id": [0, 2**63] * 25}
        frame = pl.DataFrame(columns, schema=shards.SCHEMA)
        held.append(weakref.ref(frame))
        return frame

    def ids_of(texts: pl.Series) -> tuple[np.ndarray, np.ndarray]:
        held.append(weakref.ref(texts))
        return np.zeros(0, "<i4"), np.zeros(len(texts) + 1, "<i8")

    def encode_watched(documents: pl.DataFrame, *others: Any) -> None:
        held.append(weakref.ref(documents))
        encode(documents, *others)

    monkeypatch.setattr(pack_module, "BATCH_BYTES", 1000)
    monkeypatch.setattr(shards, "documents", lambda *_: map(read, range(3)))
    tokenizer = Mock(vocab_size=2, eot_id=0)
    encode = pack_module._encode
    monkeypatch.setattr(pack_module, "_encode", encode_watched)
    encoder = Mock(encode_documents=ids_of, tokenizer=tokenizer)
    work: Any = Mock(out=tmp_path, total=1, encoder=encoder, has_sources=True)
    item: Any = Mock(rule=SplitRule(method, 0.5, edge=7_000))
    packed = pack_module._encoded(item, tmp_path / "part-00000.zst", work)
    assert packed.train.bytes + packed.val.bytes == 3 * 50 * 100


@pytest.mark.parametrize(
    ("count", "fraction", "message"),
    [
        (20, 1e-6, r"\(hash\) with tokenize.val_fraction \(1e-06\) leaves no text for validation"),
        (1, 0.5, r"leaves no text for (training|validation)"),
    ],
)
def test_empty_hash_split_is_refused(count, fraction, message, bpe_file, tmp_path: Path) -> None:
    clean = write_clean(tmp_path / "clean", [f"document {i}" for i in range(count)])
    with pytest.raises(UserError, match=message):
        pack_here(
            clean,
            bpe_file,
            tmp_path / "packed",
            TokenizeParams(split="hash", val_fraction=fraction),
        )
    assert not (tmp_path / "packed").exists()


@pytest.mark.parametrize(
    ("texts", "params"),
    [
        # The hash of the only document is that of validation text
        (["A text. " * 99 + "2"], TokenizeParams(split="auto", val_fraction=0.5)),
        ([f"hi {number}" for number in range(50)], TokenizeParams(split="ends", val_fraction=0.1)),
        # Only the mark at the end of the last turn is behind the cut
        ([render_chat([("user", "hi")])] * 50, TokenizeParams(split="ends", val_fraction=0.3)),
    ],
)
def test_no_split_is_empty(
    texts: list[str], params: TokenizeParams, bpe_file: Path, tmp_path: Path
) -> None:
    clean = write_clean(tmp_path / "clean", texts)
    if params.split == "auto":
        metadata, method = pack_here(clean, bpe_file, tmp_path / "packed", params)
        assert method == "ends"
        assert metadata.train.tokens
    else:
        with pytest.raises(UserError, match=r"tokenize.split \(ends\).*validation"):
            pack_here(clean, bpe_file, tmp_path / "packed", params)
        assert not (tmp_path / "packed").exists()


def test_empty_tail_split_is_refused(corpus: Corpus, bpe_file: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"tokenize.val_fraction \(0.4\) "):
        pack_here(
            corpus(["a"]),
            bpe_file,
            tmp_path / "packed",
            TokenizeParams(split="tail", val_fraction=0.4),
        )


def test_unknown_character_leaves_the_old_folder(
    corpus: Corpus, char_file: Path, tmp_path: Path
) -> None:
    (tmp_path / "packed").mkdir()
    (tmp_path / "packed" / "old").touch()
    with pytest.raises(UserError, match=r"U\+2603"):
        pack_here(corpus(["river ☃", "x"]), char_file, tmp_path / "packed", TAIL)
    assert [path.name for path in tmp_path.glob("packed/*")] == ["old"]
    assert not list(tmp_path.glob(".packed.tmp"))


@pytest.mark.parametrize("record", ["another tokenizer's", "no hash"])
def test_tokenizer_that_no_stage_wrote_is_refused(record: str, prose: Path, tmp_path: Path) -> None:
    file = tmp_path / "tokenizer" / "tokenizer.json"
    train_tokenizer(prose, file, TokenizerParams(type="bpe", vocab_size=300, sample_bytes=10**6))
    pack_here(prose, file, tmp_path / "whole", HASH)
    hashed = "0" * 64 if record == "another tokenizer's" else "none"
    (file.parent / RECORD).write_text(json.dumps({"sha256": hashed}))
    with pytest.raises(UserError, match=RECORD):
        pack_here(prose, file, tmp_path / "refused", HASH)
    assert not (tmp_path / "refused").exists()


def test_corpus_with_other_bytes_than_recorded_is_refused(
    prose: Path, bpe_file: Path, tmp_path, monkeypatch
) -> None:
    total = shards.totals(prose)
    monkeypatch.setattr(
        shards, "totals", lambda _: shards.Totals(total.documents, total.bytes + 1, total.chars)
    )
    with pytest.raises(UserError, match=r"[\d,]+ bytes .*from where"):
        pack_here(prose, bpe_file, tmp_path / "packed", HASH)
    assert not (tmp_path / "packed").exists()


def test_summary_counts_tokens_and_bytes(prose: Path, bpe_file: Path, tmp_path: Path) -> None:
    metadata, _ = pack_here(prose, bpe_file, tmp_path, HASH)
    numbers = packed_metrics(metadata)
    tokens = metadata.train.tokens + metadata.val.tokens
    assert numbers["train_tokens"] + numbers["val_tokens"] == tokens
    assert numbers["bytes_per_token"] == pytest.approx(
        sum(len(text.encode()) for text in PROSE) / (tokens - len(PROSE)), abs=1e-4
    )
    packed = sum(path.stat().st_size for path in tmp_path.glob("part-*.zst"))
    assert numbers["compression_ratio"] == pytest.approx(4 * tokens / packed, abs=1e-3)


def test_zstd_has_a_checksum(prose: Path, bpe_file: Path, tmp_path: Path) -> None:
    pack_here(prose, bpe_file, tmp_path, HASH)
    shard = (tmp_path / "part-00000.zst").read_bytes()
    assert zstandard.get_frame_parameters(shard).has_checksum


def test_big_ids_are_four_bytes_little_endian() -> None:
    tokens = np.array([65_536, 100_000, 2**31 - 1, 70_000], dtype="<i4")
    part = pack_module.PackedPart(packed_dtype(1 << 17))
    part.add(tokens, pl.Series(["abc"]), np.array([True]), None)
    part.finish()
    assert (
        zstandard.ZstdDecompressor().decompressobj().decompress(part.content)
        == b"\x00\x00\x01\x00" + b"\xa0\x86\x01\x00" + b"\xff\xff\xff\x7f" + b"\x70\x11\x01\x00"
    )


def test_end_of_text_after_every_end() -> None:
    ids, offsets = np.array([5, 6, 7], dtype="<i4"), np.array([0, 2, 3, 3])
    tokenizer: Any = Mock(turn_ids={}, eot_id=0)
    fixed = encoder.Encoder("table", lambda _: (ids, offsets), tokenizer)
    work: Any = Mock(encoder=fixed, has_sources=False)
    part = Mock()
    pack_module._encode(pl.DataFrame({"text": ["ab", "c", ""]}), part, work)
    (found, *_), _ = part.add.call_args
    assert (found.tolist(), found.dtype.str) == ([5, 6, 0, 7, 0, 0], "<i4")


def test_metadata_names_the_tokenizer(prose: Path, bpe_file: Path, tmp_path: Path) -> None:
    metadata, _ = pack_here(prose, bpe_file, tmp_path, HASH)
    tokenizer = read_tokenizer(bpe_file)
    assert isinstance(metadata, TokenMetadata)
    assert (metadata.tokenizer_sha256, metadata.tokenizer_type) == (tokenizer.sha256, "bpe")
    assert (metadata.vocab_size, metadata.eot_id, metadata.dtype) == (400, tokenizer.eot_id, "<i4")
    assert shards.totals(prose).documents == metadata.train.documents + metadata.val.documents
