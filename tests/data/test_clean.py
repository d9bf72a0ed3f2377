import hashlib
import json
import re
from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pytest
import xxhash

from stages import clean as stage
from tests.data.material import NEAR_DUPLICATES, filters, json_lines, parameters
from tokenmill.core.errors import UserError
from tokenmill.core.params import Section, validate
from tokenmill.data import chunks, duplicates, shard_writer
from tokenmill.data.clean import clean
from tokenmill.data.report import LANGUAGE_SAMPLE
from tokenmill.executors.threads import ThreadExecutor
from tokenmill.formats import shards
from tokenmill.formats.metrics import Example
from tokenmill.progress import Progress

WORDS = [
    "the",
    "quick",
    "brown",
    "fox",
    "—",
    "jumps",
    "över",
    "the",
    "lazy",
    "dog",
    "😀",
    "and",
    "so",
    "on",
]


def corpus(folder: Path, documents: int = 3000) -> Path:
    rows = [
        {"text": " ".join(WORDS[i % 5 : i % 13 + 1] * (i % 7 + 1)) + f" {i % 2500}"}
        for i in range(documents)
    ]
    (folder / "raw").mkdir()
    for part in range(3):
        (folder / "raw" / f"{part}.jsonl").write_bytes(json_lines(rows[part::3]))
    return folder / "raw"


def digest(folder: Path) -> dict[str, str]:
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.iterdir())
    }


@pytest.mark.parametrize(("near", "dropped"), [(False, 0), (True, 260)])
def test_chunks_and_threads_change_no_byte(tmp_path, monkeypatch, near, dropped):
    """Nor does it where duplicates are judged: here, or by tasks."""
    raw = corpus(tmp_path, documents=1000)
    with (raw / "3.txt").open("w") as file:
        file.writelines(f"Line {i % 70}\n\n" for i in range(300))
    params = parameters(text_file="paragraph", near_duplicates={**NEAR_DUPLICATES, "enabled": near})
    results = []
    monkeypatch.setattr(shard_writer, "SHARD_BYTES", 7_000)
    for chunk_bytes, threads, here in ((8 << 20, 2, True), (9_999, 1, False), (1_000, 20, False)):
        monkeypatch.setattr(ThreadExecutor, "task_bytes", chunk_bytes)
        monkeypatch.setattr(duplicates, "HERE_BYTES", 1 << 30 if here else 0)
        report = clean(
            raw=raw,
            out=tmp_path / "out",
            params=params,
            executor=ThreadExecutor(threads=threads),
        )
        results.append((report.model_dump(by_alias=True), digest(tmp_path / "out")))
    assert len(results[0][1]) > 3
    assert results[0][0]["dropped"]["duplicate"] == 230
    assert results[0][0]["dropped"].get("near_duplicate", 0) == dropped
    assert all(result == results[0] for result in results)


def test_documents_and_counts_agree(tmp_path):
    report = clean(
        raw=corpus(tmp_path),
        out=tmp_path / "out",
        params=parameters(),
        executor=ThreadExecutor(threads=2),
    )
    table = pl.read_parquet(tmp_path / "out" / "*.parquet")
    assert table.schema == shards.SCHEMA
    texts = table["text"].to_list()
    assert table["id"].to_list() == [xxhash.xxh3_64_intdigest(text.encode()) for text in texts]
    assert table["source"].unique(maintain_order=True).to_list() == [
        "0.jsonl",
        "1.jsonl",
        "2.jsonl",
    ]
    assert report.documents.kept == len(texts) == len(set(texts))
    assert report.documents.read == 3000 == report.documents.kept + report.dropped["duplicate"]
    assert report.characters.out == sum(map(len, texts))
    assert sum(report.languages.values()) == LANGUAGE_SAMPLE < len(texts)


def test_duplicates_are_dropped_in_order_or_kept(tmp_path, run):
    (tmp_path / "a.jsonl").write_bytes(
        json_lines([{"text": t} for t in ("b", "a", " b ", "a", "c")])
    )
    assert run(tmp_path / "a.jsonl")[0] == ["b", "a", "c"]
    assert run(tmp_path / "a.jsonl", deduplicate=False)[0] == ["b", "a", "b", "a", "c"]
    assert run(tmp_path / "a.jsonl", mode="none")[0] == ["b", "a", " b ", "c"]


def test_lengths_count_characters_after_cleaning(tmp_path, run):
    (tmp_path / "a.jsonl").write_bytes(
        json_lines([{"text": t} for t in ("é", " éé ", "ééé", "éééé", "😀", None)])
    )
    documents, report = run(tmp_path / "a.jsonl", min_chars=2, max_chars=3)
    assert documents == ["éé", "ééé"]
    unlimited = run(tmp_path / "a.jsonl")[1].meanings["too_long"]
    assert re.findall(r"\d+", report.meanings["too_long"]) == ["3"]
    assert not re.search(r"\d", unlimited), "no limit is no number"
    assert {reason: n for reason, n in report.dropped.items() if n} == {
        "empty": 2,
        "too_short": 1,
        "too_long": 1,
    }
    with pytest.raises(UserError, match=r"2 empty, 4 too_short.*clean.mode"):
        run(tmp_path / "a.jsonl", min_chars=9)


ALL_ON: dict[str, Any] = {
    "drop_boilerplate": True,
    "mask": ["email", "phone", "card", "ip"],
    "filters": filters(
        max_digit_fraction=0.2,
        max_symbol_fraction=0.2,
        languages=["en"],
        gopher_quality=True,
        gopher_min_words=6,
        gopher_stop_words=1,
        gopher_repetition=True,
    ),
    "near_duplicates": {**NEAR_DUPLICATES, "enabled": True, "ngram": 2},
}
PROSE = (
    "The mill by the river has stood there for a hundred years, "
    "and most of them were kind to it and to us."
)


def test_every_filter_has_its_reason_and_an_example(tmp_path, run):
    texts = {
        None: PROSE,
        "digits": "12345 67890 12345 67890 and so on",
        "symbols": "%%%% $$$$ the and of &&&& **** and so on",
        "language": (
            "Die Mühle am Fluss steht dort seit hundert Jahren, "
            "und die meisten davon waren freundlich zu ihr."
        ),
        "gopher_words": "Too few of the words.",
        "gopher_stop_words": (
            "Seven silly sailors swam silently southward searching something shiny."
        ),
        "top_ngrams": (
            "The river is loud and the river is loud and the river is loud "
            "and the river is loud and wide."
        ),
        "duplicate": PROSE,
        "near_duplicate": PROSE.replace(",", ";"),
    }
    (tmp_path / "a.jsonl").write_bytes(json_lines([{"text": text} for text in texts.values()]))
    documents, report = run(tmp_path / "a.jsonl", **ALL_ON)
    assert documents == [PROSE]
    assert {reason: n for reason, n in report.dropped.items() if n} == dict.fromkeys(
        filter(None, texts), 1
    )
    assert report.examples == {
        reason: [Example(text=text, source="a.jsonl")] for reason, text in texts.items() if reason
    }


def test_cleaning_what_is_clean_changes_nothing(tmp_path, run):
    noise = Random(0)
    words = [
        *PROSE.split(),
        "“quoted”",
        "a@example.org",
        "+44 20 7946 0958",
        "10.20.30.40",
        "cookies\n",
        "😀",
        "\t\t",
    ]
    texts = [" ".join(noise.choices(words, k=noise.randrange(5, 60))) for _ in range(500)]
    (tmp_path / "a.jsonl").write_bytes(
        json_lines([{"text": text} for text in [*texts, *texts[:50]]])
    )
    documents, report = run(tmp_path / "a.jsonl", **ALL_ON)
    assert report.dropped["duplicate"]
    assert len(documents) > 100
    assert any("[EMAIL]" in text for text in documents)
    (tmp_path / "again.jsonl").write_bytes(json_lines([{"text": text} for text in documents]))
    again, second = run(tmp_path / "again.jsonl", **ALL_ON)
    assert again == documents
    assert not sum(second.dropped.values())


def test_text_files_as_files_paragraphs_and_lines(tmp_path, run):
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfOne.\r\nTwo.\r\n\r\nThree.\r\n")
    (tmp_path / "b.md").write_bytes(b"")
    assert run(tmp_path)[0] == ["One.\nTwo.\n\nThree."]
    assert run(tmp_path)[1].dropped["empty"] == 1
    assert run(tmp_path, text_file="paragraph")[0] == ["One.\nTwo.", "Three."]
    assert run(tmp_path, text_file="line")[0] == ["One.", "Two.", "Three."]


def test_many_small_files(tmp_path, run):
    for i in range(300):
        (tmp_path / f"ñ {i:03}.txt").write_text(f"Text number {i}.", encoding="utf-8")
    documents, report = run(tmp_path)
    assert documents == [f"Text number {i}." for i in range(300)]
    assert report.files.read == 300


@pytest.mark.parametrize(("mode", "said"), [("strict", 1), ("balanced", 0)])
def test_what_a_mode_takes_is_said_at_once(tmp_path, run, monkeypatch, mode, said):
    notes = []
    monkeypatch.setattr(Progress, "note", lambda _, sentence: notes.append(sentence))
    monkeypatch.setattr(chunks, "CHUNK_FILES", 1)
    for name in "ab":
        (tmp_path / f"{name}.txt").write_text(f"{name}: 天地玄黄", encoding="utf-8")
    run(tmp_path, mode=mode)
    assert len(notes) == said


def test_an_earlier_result_survives_a_failure(tmp_path, run):
    (tmp_path / "a.jsonl").write_bytes(json_lines([{"text": "good"}]))
    run(tmp_path / "a.jsonl")
    before = digest(run.out)
    (tmp_path / "a.json").write_bytes(b'[{"text": "x"},')
    with pytest.raises(UserError):
        run(tmp_path / "a.json")
    assert digest(run.out) == before
    assert list(run.out.parent.iterdir()) == [run.out]


def test_a_full_disk_says_what_is_needed(tmp_path, monkeypatch):
    def full(*args):
        raise OSError(28, "No space left on device")

    raw = corpus(tmp_path)
    monkeypatch.setattr("tokenmill.data.shard_writer.write_shard", full)
    with pytest.raises(UserError, match=r"No space left on device.* [\d,]+ bytes"):
        clean(
            raw=raw, out=tmp_path / "out", params=parameters(), executor=ThreadExecutor(threads=2)
        )
    assert not (tmp_path / "out").exists()


def test_the_output_is_never_its_own_input(tmp_path):
    raw = corpus(tmp_path)
    for out in (raw, raw / "deep" / "clean"):
        with pytest.raises(UserError, match="which this stage writes"):
            clean(raw=raw, out=out, params=parameters(), executor=ThreadExecutor(threads=2))


def test_a_link_to_itself_is_no_text(tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(UserError, match="does not exist"), ThreadExecutor() as executor:
        clean(raw=tmp_path / "loop", out=tmp_path / "out", params=parameters(), executor=executor)


def test_bounds_that_drop_everything_are_refused():
    class View(Section):
        clean: type(parameters())  # pyright: ignore[reportInvalidTypeForm]

    content = {**parameters().model_dump(), "min_chars": 9, "max_chars": 3}
    with pytest.raises(UserError, match=r"clean.max_chars \(3\) .*clean.min_chars \(9\)"):
        validate(View, {"clean": content}, Path("params.yaml"))


def test_the_stage_writes_metrics_and_two_lines(here, capsys):
    Path("in.jsonl").write_bytes(json_lines([{"text": "a"}, {"text": "a"}]))
    values = parameters().model_dump_json()
    runtime = '{"data_engine": "local", "ray_address": null, "store": null}'
    Path("params.yaml").write_text(
        '{"data": {"raw": "in.jsonl", "encoding": "auto", "mixture": null}, '
        f'"clean": {values}, "runtime": {runtime}}}'
    )
    stage.main()
    assert json.loads(Path("metrics/clean.json").read_bytes())["dropped_duplicate"] == 1
    assert json.loads(Path("data/clean_report.json").read_bytes())["examples"] == {
        "duplicate": [{"text": "a", "source": "in.jsonl"}]
    }
    assert shards.totals(Path("data/clean")).documents == 1
    assert capsys.readouterr().out.count("\n") == 2
