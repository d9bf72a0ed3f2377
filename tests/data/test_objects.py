"""Objects in S3 give what files give; what is not there, changes or is refused ends in a
sentence."""

import contextlib
import errno
import io
import json
import pickle
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import fsspec
import polars as pl
import pytest

from tests.data.material import PACK, json_lines, parameters, parquet
from tests.tokens.clean_text import PROSE
from tokenmill.core.errors import UserError
from tokenmill.data import chunks, readers, shard_writer, sources
from tokenmill.data.clean import clean
from tokenmill.data.readers import FORMATS
from tokenmill.data.report import Tally
from tokenmill.data.sources import Source, find_sources, opened
from tokenmill.evaluation.prompts import MOST_BYTES, prompts_beside
from tokenmill.executors.threads import ThreadExecutor
from tokenmill.formats.raw_text import Objects, changed, raw_text
from tokenmill.inputs import Inputs
from tokenmill.planning.fit import Corpus
from tokenmill.schema import AllParams, check_all, refuse_for_stages


@pytest.fixture
def prefix(bucket: str, request: pytest.FixtureRequest) -> str:
    """A folder of this test alone."""
    return f"{bucket}/{request.node.name}"


@pytest.fixture(autouse=True)
def nothing_is_kept() -> Iterator[None]:
    """Of an archive or a table that an earlier test has read."""
    yield
    sources._archive.cache_clear()
    readers._table_here.cache_clear()


def upload(folder: Path, prefix: str) -> Objects:
    for path in folder.rglob("*"):
        if path.is_file():
            place = f"{prefix}/{path.relative_to(folder).as_posix()}"
            fsspec.filesystem("s3").pipe(place, path.read_bytes())
    return Objects(prefix)


def put(url: str, data: bytes) -> None:
    fsspec.filesystem("s3").pipe(url, data)


def write_everything(folder: Path) -> None:
    """PROSE in every format, compression and kind of encoding, each text in one file only."""
    rows = [{"text": text} for text in PROSE]
    whole = {
        ".txt": "\n\n".join(PROSE).encode(),
        ".jsonl": json_lines(rows),
        ".json": json.dumps(rows).encode(),
        ".csv": ("text\n" + "".join(json.dumps(text) + "\n" for text in PROSE)).encode(),
        ".parquet": parquet(rows),
    }
    for ending, data in whole.items():
        for compression, pack in PACK.items():
            path = folder / ending[1:] / f"all{ending}{compression}"
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(pack(data))
    for encoding in ("utf-16", "cp1251", "utf-8-sig"):
        text = "\n\n".join(f"{number}: {'Привет, мир. ' * 9}" for number in range(40))
        (folder / f"{encoding}.txt").write_text(text, encoding=encoding)
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for ending in (".txt", ".jsonl"):
            file.writestr(f"in/all{ending}", whole[ending])
    (folder / "some.zip").write_bytes(archive.getvalue())
    (folder / ".hidden.txt").write_text("hidden")
    (folder / "picture.png").write_text("no text")
    (folder / "prompts.yaml").write_text("prompts: [{user: Who?}]")


def cleaned(
    raw: Path | Objects, out: Path, chunk_bytes: int, store: str | None = None
) -> tuple[dict[str, bytes], Any]:
    """The shards, and the report without the name of the raw text."""
    with (
        patch.object(ThreadExecutor, "task_bytes", chunk_bytes),
        patch.object(shard_writer, "SHARD_BYTES", 20_000),
    ):
        report = clean(
            raw=raw,
            out=out,
            params=parameters(text_file="paragraph", deduplicate=False),
            executor=ThreadExecutor(threads=2),
            store=store,
        )
    said = json.dumps(report.model_dump(by_alias=True)).replace(str(raw), "RAW")
    return {path.name: path.read_bytes() for path in out.iterdir()}, json.loads(said)


@pytest.mark.parametrize("chunk_bytes", [1500, 8 << 20])
def test_objects_give_what_files_give(tmp_path: Path, prefix: str, chunk_bytes: int) -> None:
    (tmp_path / "raw").mkdir()
    write_everything(tmp_path / "raw")
    objects = upload(tmp_path / "raw", prefix)
    put(f"{prefix}/json/", b"")  # as some tools mark a folder
    files = cleaned(tmp_path / "raw", tmp_path / "files", chunk_bytes)
    assert len(files[0]) > 10
    assert cleaned(objects, tmp_path / "objects", chunk_bytes) == files


def test_one_object_is_read_as_one_file(tmp_path: Path, prefix: str) -> None:
    (tmp_path / "raw").mkdir()
    write_everything(tmp_path / "raw")
    upload(tmp_path / "raw", prefix)
    for name in ("some.zip", "parquet/all.parquet", "cp1251.txt"):
        there = cleaned(raw_text(f"{prefix}/{name}"), tmp_path / "object", 1500)
        assert there == cleaned(tmp_path / "raw" / name, tmp_path / "file", 1500)


def test_a_table_is_copied_once_for_all_its_chunks(
    tmp_path: Path, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(6):
        put(f"{prefix}/{number}.parquet", parquet([{"text": f"{number} {one}"} for one in PROSE]))
    copied = Counter[str]()
    whole = readers.blocks

    def counting(source: Source) -> Iterator[bytes]:
        copied[source.name] += 1
        return whole(source)

    monkeypatch.setattr(readers, "blocks", counting)
    monkeypatch.setattr(readers, "PARQUET_ROWS", 5)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    planner = chunks.Planner(parameters(), lambda _: None, 500)
    planned = list(planner.chunks(find_sources(Objects(prefix), FORMATS).sources))
    assert len(planned) > 12
    expected = [f"{number} {one}" for number in range(6) for one in PROSE]
    for times in (1, 2):
        found = [chunk.read(parameters(), Tally())[0] for chunk in planned]
        assert pl.concat(found).to_list() == expected
        assert copied == {f"{number}.parquet": times for number in range(6)}
        # As another process has them
        planned = (pickle.loads(pickle.dumps(chunk)) for chunk in planned)  # noqa: S301 (ours)
    del planned
    readers._table_here.cache_clear()
    assert not list(tmp_path.iterdir())


def test_a_listing_asks_once_for_all_objects(prefix: str, monkeypatch) -> None:
    for number in range(30):
        put(f"{prefix}/{number}.txt", b"text")
    asked = []
    call = fsspec.get_filesystem_class("s3")._call_s3

    async def counting(self: Any, method: str, *arguments: Any, **named: Any) -> Any:
        asked.append(method)
        return await call(self, method, *arguments, **named)

    monkeypatch.setattr(fsspec.get_filesystem_class("s3"), "_call_s3", counting)
    assert len(find_sources(Objects(prefix), FORMATS).sources) == 30
    assert len(asked) <= 2


def test_names_are_not_followed(prefix: str) -> None:
    names = ("a::b.txt", "a b?.txt", "ü#.txt", "[x]*.txt")
    for name in names:
        put(f"{prefix}/{name}", f"text of {name}".encode())
    found = find_sources(Objects(prefix), FORMATS).sources
    assert {source.name for source in found} == set(names)
    texts = [next(readers.texts(source, parameters(), Tally())) for source in found]
    assert texts == [f"text of {source.name}" for source in found]


def refused(raw: Path | Objects, out: Path, store: str | None = None) -> str:
    """The sentence with which `clean` ends; nothing is left of its output."""
    with pytest.raises(UserError) as error:
        cleaned(raw, out, 8 << 20, store)
    assert not out.exists()
    assert str(raw) in str(error.value)
    return str(error.value)


def test_what_is_not_there_is_refused(tmp_path: Path, bucket: str, prefix: str) -> None:
    put(f"{prefix}/picture.png", b"x")
    for url in (f"{bucket}/nothing", "s3://no-such-bucket/x", prefix, f"{prefix}/picture.png"):
        refused(Objects(url), tmp_path / "out")


def test_a_server_out_of_reach_is_a_sentence(tmp_path: Path, prefix: str, monkeypatch) -> None:
    put(f"{prefix}/a.txt", b"text")
    s3 = fsspec.get_filesystem_class("s3")
    monkeypatch.setattr(s3, "retries", 1)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    s3.clear_instance_cache()
    refused(Objects(prefix), tmp_path / "out")
    s3.clear_instance_cache()


@pytest.mark.parametrize("name", ["a.txt", "a.parquet", "a.jsonl.gz", "a.zip"])
def test_a_change_after_the_listing_is_refused(prefix: str, name: str) -> None:
    put(f"{prefix}/{name}", _content(name, "before"))
    (source,) = find_sources(Objects(prefix), FORMATS).sources
    put(f"{prefix}/{name}", _content(name, "after!"))
    with pytest.raises(UserError) as error:
        list(readers.texts(source, parameters(), Tally()))
    assert source.location in str(error.value)
    fsspec.filesystem("s3").rm_file(f"{prefix}/{name}")
    with pytest.raises(UserError) as error:
        list(readers.texts(source, parameters(), Tally()))
    assert source.location in str(error.value)


def _content(name: str, text: str) -> bytes:
    if name.endswith(".parquet"):
        return parquet([{"text": text}])
    if name.endswith(".gz"):
        return PACK[".gz"](json_lines([{"text": text}]))
    if name.endswith(".zip"):
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w") as file:
            file.writestr("a.txt", text)
        return archive.getvalue()
    return text.encode()


def test_a_change_between_two_ranges_is_refused(prefix: str) -> None:
    size = 9 << 20
    put(f"{prefix}/a.txt", b"a" * size)
    (source,) = find_sources(Objects(prefix), FORMATS).sources
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(opened(source))
        assert file.read(10) == b"a" * 10
        put(f"{prefix}/a.txt", b"b" * size)
        with pytest.raises(UserError) as error:
            file.read()
    assert source.location in str(error.value)


def test_a_busy_server_is_no_change(prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EBUSY, "Please reduce your request rate.")

    put(f"{prefix}/a.txt", b"text")
    (source,) = find_sources(Objects(prefix), FORMATS).sources
    monkeypatch.setattr("s3fs.core._fetch_range", refuse)
    with pytest.raises(UserError, match="request rate") as error:
        list(readers.texts(source, parameters(), Tally()))
    assert str(error.value) != str(changed(source.location))


def test_a_pointer_in_place_of_text_is_refused(tmp_path: Path, prefix: str) -> None:
    put(f"{prefix}/a.txt", sources.LFS_POINTER + b"v1\noid sha256:0\nsize 1\n")
    assert "LFS" in refused(Objects(prefix), tmp_path / "out")


def test_a_store_within_the_raw_text_is_refused(tmp_path: Path, prefix: str) -> None:
    put(f"{prefix}/a.txt", b"text")
    refused(Objects(prefix), tmp_path / "out", store=f"{prefix}/shards")


def test_prompts_beside_the_text(prefix: str) -> None:
    assert prompts_beside(Objects(prefix)) is None
    put(f"{prefix}/prompts.yaml", b"prompts: [{user: Who?}]")
    assert [one.user for one in prompts_beside(Objects(prefix)) or ()] == ["Who?"]
    put(f"{prefix}/prompts.yaml", b"prompts: [" + b" " * MOST_BYTES + b"]")
    with pytest.raises(UserError) as error:
        prompts_beside(Objects(prefix))
    assert prefix in str(error.value)


def with_raw(raw: str) -> AllParams:
    params = check_all()
    return params.model_copy(update={"data": params.data.model_copy(update={"raw": raw})})


def test_parameters_and_proposals_know_objects(tmp_path: Path, prefix: str) -> None:
    put(f"{prefix}/a.txt", "\n\n".join(PROSE).encode())
    refuse_for_stages(with_raw(prefix))
    with pytest.raises(UserError):
        refuse_for_stages(with_raw(f"{prefix}/nothing"))
    (tmp_path / "a.txt").write_text("\n\n".join(PROSE), encoding="utf-8")
    assert Corpus.read(Path(), with_raw(prefix)) == Corpus.read(Path(), with_raw(str(tmp_path)))


def test_a_stage_sees_that_objects_changed(here: Path, prefix: str) -> None:
    Path("params.yaml").write_text(f"data: {{raw: '{prefix}'}}\n")
    Path("dvc.yaml").write_text("stages: {clean: {deps: ['${data.raw}'], params: [data]}}\n")
    put(f"{prefix}/a.txt", b"before")
    inputs = Inputs("clean")
    inputs.check_unchanged()
    put(f"{prefix}/a.txt", b"after!")
    with pytest.raises(UserError) as error:
        inputs.check_unchanged()
    assert prefix in str(error.value)
