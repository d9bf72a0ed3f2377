import bz2
import collections
import contextlib
import gzip
import lzma
import os
import sys
import tracemalloc
import zipfile
from pathlib import Path

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.data.material import PACK, json_lines, parameters, parquet
from tokenmill.core.errors import UserError
from tokenmill.core.paths import SAMPLE
from tokenmill.data.readers import FORMATS, PARQUET_ROWS, texts
from tokenmill.data.report import Tally
from tokenmill.data.sources import BLOCK_BYTES, blocks, find_sources
from tokenmill.executors.threads import ThreadExecutor
from tokenmill.formats.chat import render_chat
from tokenmill.words.cleaning import cleaning_in_words

BROKEN = [ending for ending in PACK if ending]


def only(path: Path):
    (source,) = find_sources(path, FORMATS).sources
    return source


def test_order_is_that_of_the_bytes_of_the_paths(tmp_path):
    for name in (
        "b.txt",
        "B.txt",
        "é.txt",
        "a/z.md",
        "a.txt",
        "a b/c.txt",
        "Z.TXT.GZ",
        "v1.2.json",
    ):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(gzip.compress(b"x") if name.endswith("GZ") else b"x")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "x.txt").write_text("hidden")
    (tmp_path / ".hidden.txt").write_text("hidden")
    (tmp_path / "c.pdf").write_text("x")
    (tmp_path / "LICENSE").write_text("x")
    (tmp_path / "prompts.yaml").write_text("prompts: []")
    found = find_sources(tmp_path, FORMATS)
    assert [s.name for s in found.sources] == sorted(
        (s.name for s in found.sources), key=os.fsencode
    )
    assert {s.name for s in found.sources} == {
        "b.txt", "B.txt", "é.txt", "a/z.md", "a.txt", "a b/c.txt", "Z.TXT.GZ", "v1.2.json",
    }  # fmt: skip
    assert found.skipped == {"": 1, ".pdf": 1}


def test_files_named_test_are_held_out(tmp_path, run):
    raw = tmp_path / "test"  # the name of the folder itself says nothing
    for name in ("train.txt", "valid.txt", "contest.txt", "test.txt", "Test/1.md", "a.test.txt"):
        path = raw / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"the text of {name}")
    texts, report = run(raw)
    assert texts == [f"the text of {name}" for name in ("contest.txt", "train.txt", "valid.txt")]
    assert report.held_out == ["Test/1.md", "a.test.txt", "test.txt"]
    assert report.files.read == report.metrics()["files_held_out"] == 3
    assert "3 files named test (Test/1.md, a.test.txt, test.txt)" in cleaning_in_words(report)


def test_the_word_test_in_a_title_holds_nothing_out(tmp_path, run):
    for name in ("test.txt", "a-test-of-courage.txt", "brains.txt"):
        (tmp_path / name).write_text(name)
    for raw in (tmp_path, tmp_path / "test.txt"):
        texts, report = run(raw)
        assert "test.txt" in texts
        assert not report.held_out
        assert "held out" not in cleaning_in_words(report)


@pytest.mark.parametrize("name", ["a.txt", "a.parquet", "a.jsonl.zst"])
def test_a_pointer_of_git_lfs_is_no_text(tmp_path: Path, name: str):
    (tmp_path / name).write_text(
        f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 1\n"
    )
    with pytest.raises(UserError, match="Git LFS"):
        find_sources(tmp_path, FORMATS)


@pytest.mark.parametrize("ending", PACK)
def test_streams_are_what_was_packed(tmp_path, ending):
    data = os.urandom(BLOCK_BYTES + 9) + bytes(BLOCK_BYTES)
    path = tmp_path / f"a.txt{ending}"
    path.write_bytes(PACK[ending](data))
    read = []
    assert b"".join(blocks(only(path), read.append)) == data
    assert sum(read) == path.stat().st_size


@pytest.mark.parametrize("ending", [".gz", ".zst", ".bz2", ".xz"])
def test_several_members_in_one_archive(tmp_path, ending):
    path = tmp_path / f"a.txt{ending}"
    path.write_bytes(PACK[ending](b"one ") + PACK[ending](b"two"))
    assert b"".join(blocks(only(path))) == b"one two"


@pytest.mark.parametrize("ending", BROKEN)
def test_a_damaged_member_is_refused_and_padding_read(tmp_path, run, ending):
    one, two = (bytearray(PACK[ending](json_lines([text]))) for text in ("one", "two"))
    path = tmp_path / f"a.jsonl{ending}"
    if ending != ".zst":
        path.write_bytes(one + bytes(8) + two + bytes(1024))
        assert run(path)[0] == ["one", "two"]
    two[1] ^= 1
    path.write_bytes(one + two)
    with pytest.raises(UserError, match=r"a\.jsonl.* is a broken archive \(.+\)"):
        run(path)


@pytest.mark.parametrize("ending", BROKEN)
@pytest.mark.parametrize("kept", [0.5, 0.99])
def test_a_truncated_archive_is_refused_by_name(tmp_path, run, ending, kept):
    whole = PACK[ending](json_lines([{"text": f"text {i}"} for i in range(2000)]))
    path = tmp_path / f"my data.jsonl{ending}"
    path.write_bytes(whole[: int(len(whole) * kept)])
    with pytest.raises(UserError, match=r"my data.jsonl.* archive \(.+\)"):
        run(path)
    assert not list(run.out.parent.iterdir())


@pytest.mark.parametrize("ending", BROKEN)
def test_a_file_that_is_no_archive_is_refused(tmp_path, run, ending):
    """Only text is to be renamed, not what is compressed otherwise, nor a page about an error."""
    path = tmp_path / f"a.txt{ending}"
    path.write_bytes("plain text, not compressed at all, é".encode())
    with pytest.raises(UserError, match=r"is not compressed.* a\.txt "):
        run(path)
    others = [PACK[other](b"text " * 99) for other in BROKEN if other != ending]
    for content in (*others, b"PK\x03\x04", b"<!DOCTYPE html><title>Log in</title>"):
        path.write_bytes(content)
        with pytest.raises(UserError, match="is a broken archive"):
            run(path)


@pytest.mark.parametrize("size", [1, 1 << 20])
@pytest.mark.parametrize("name", ["a.txt", "a.csv", "a.json", "a.jsonl"])
def test_an_archive_that_its_name_hides_is_refused(tmp_path, run, monkeypatch, name, size):
    monkeypatch.setattr(ThreadExecutor, "task_bytes", size)
    archives = {ending: PACK[ending](b"text,n\none,1\n" * 99) for ending in BROKEN}
    for ending, packed in {**archives, ".zip": b"PK\x03\x04\x14"}.items():
        (tmp_path / name).write_bytes(packed)
        with pytest.raises(UserError, match=rf"{name} is compressed; rename it to {name}{ending} "):
            run(tmp_path)


def test_a_text_may_begin_with_the_letters_of_an_archive(tmp_path, run):
    (tmp_path / "a.txt").write_text("BZh is how bzip2 begins")
    assert run(tmp_path)[0] == ["BZh is how bzip2 begins"]


def test_a_wide_window_is_no_damage(tmp_path, run):
    parameters = zstandard.ZstdCompressionParameters(window_log=28, enable_ldm=True)
    compressor = zstandard.ZstdCompressor(compression_params=parameters)
    stream = compressor.compressobj()
    (tmp_path / "a.txt.zst").write_bytes(stream.compress(b"x") + stream.flush())
    with pytest.raises(UserError, match=r"a\.txt\.zst .*128 MiB"):
        run(tmp_path)


def test_a_wide_window_of_xz_is_refused_too(tmp_path, run):
    """The bytes 1 to 4 of this older format are the window's size."""
    packed = bytearray(lzma.compress(b"x", format=lzma.FORMAT_ALONE))
    packed[1:5] = (512 << 20).to_bytes(4, "little")
    (tmp_path / "a.txt.xz").write_bytes(packed)
    with pytest.raises(UserError, match=r"a\.txt\.xz .*128 MiB; unpack it \(`xz -d`\)"):
        run(tmp_path)


@settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.integers(min_value=0), byte=st.integers(0, 255), length=st.integers(0, 8))
def test_a_damaged_zip_is_read_or_refused(tmp_path: Path, place: int, byte: int, length: int):
    """Some of its bytes are overwritten, or one is left out."""
    records = json_lines([{"text": "x"}])
    path = zipped(tmp_path / "a.zip", {"é.txt": b"hello " * 50, "b/c.jsonl": records})
    whole = path.read_bytes()
    place %= len(whole)
    path.write_bytes(whole[:place] + bytes([byte]) * length + whole[place + max(1, length) :])
    with contextlib.suppress(UserError):
        for source in find_sources(path, FORMATS).sources:
            collections.deque(blocks(source), maxlen=0)


@pytest.mark.parametrize("ending", BROKEN)
def test_a_bomb_takes_bounded_memory(tmp_path, ending):
    path = tmp_path / f"bomb.txt{ending}"
    if ending == ".zst":
        compressor = zstandard.ZstdCompressor(19).stream_writer(path.open("wb"))
    else:
        compressor = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}[ending](path, "wb")
    with compressor:
        for _ in range(80):
            compressor.write(bytes(1 << 20))
    assert path.stat().st_size < 100_000
    tracemalloc.start()
    assert sum(map(len, blocks(only(path)))) == 80 << 20
    assert tracemalloc.get_traced_memory()[1] < 40 << 20
    tracemalloc.stop()


def test_unreadable_input_is_refused(tmp_path, run):
    with pytest.raises(UserError, match="dvc repro sample"):
        find_sources(tmp_path / SAMPLE, FORMATS)
    with pytest.raises(UserError, match=r"data.raw \(.*nowhere\)"):
        run(tmp_path / "nowhere")
    with pytest.raises(UserError, match=r"holds no text \(no files\)"):
        run(tmp_path)
    (tmp_path / "a.pdf").write_text("x")
    with pytest.raises(UserError, match=r"1 \.pdf.*\.txt"):
        run(tmp_path)
    with pytest.raises(UserError, match=r"a\.pdf\).*1 \.pdf file.*\.txt"):
        run(tmp_path / "a.pdf")
    (tmp_path / "a.txt").write_text("")
    with pytest.raises(UserError, match=r"1 empty"):
        run(tmp_path)
    (tmp_path / "bad.parquet").write_bytes(parquet([{"text": "x"}])[:-9])
    with pytest.raises(UserError, match=r"bad\.parquet"):
        run(tmp_path)


def test_links_out_of_data_raw_are_refused(here):
    raw = here / "raw"
    cached = here / "cache on another disk/files/md5/ab" / ("0c" * 15)
    (raw / "deep").mkdir(parents=True)
    (raw / "a.txt").write_text("inside")
    (raw / "deep" / "b.txt").symlink_to("../a.txt")
    cached.parent.mkdir(parents=True)
    cached.write_text("DVC may link to its cache")
    (raw / "c.txt").symlink_to(cached)
    assert [source.name for source in find_sources(raw, FORMATS).sources] == [
        "a.txt",
        "c.txt",
        "deep/b.txt",
    ]
    (raw / "passwd.txt").symlink_to("/etc/passwd")
    with pytest.raises(UserError, match=r"passwd\.txt .*data\.raw.* /etc/passwd"):
        find_sources(raw, FORMATS)
    (raw / "passwd.txt").unlink()
    (raw / "books").symlink_to("deep")
    with pytest.raises(UserError, match=r"raw/books is a link to a folder"):
        find_sources(raw, FORMATS)


def test_names_are_ordered_by_their_bytes(tmp_path):
    names = ["\U0001f600.txt", "\uffee.txt", "é/b.txt", "é.txt", "z.txt"]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    found = [source.name for source in find_sources(tmp_path, FORMATS).sources]
    assert found == sorted(names, key=str.encode)


@pytest.mark.parametrize(
    "name",
    [
        *(b"\xe9.txt", b"caf\xe9/a.txt", b"\xe9.parquet", b"photo\xe9.png"),
        *(b".\xe9", b"caf\xe9/.a", b".a/\xe9", b".a/b/caf\xe9/c"),
    ],
)
def test_a_name_that_dvc_cannot_record_is_refused(tmp_path, name):
    if sys.platform == "darwin":
        pytest.skip("names are UTF-8 here")
    file = tmp_path / os.fsdecode(name)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("x")
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(UserError, match=r"\\xe9.* rename it") as error:
        find_sources(tmp_path, FORMATS)
    assert str(error.value).encode()  # can be printed


@pytest.mark.skipif(sys.platform == "darwin", reason="names are UTF-8 here")
def test_what_dvc_does_not_record_may_have_any_name(tmp_path):
    """DVC records none, nor what is in a folder that it ignores."""
    for folder in (b"caf\xe9", b".a/caf\xe9"):
        (tmp_path / os.fsdecode(folder)).mkdir(parents=True)
    for ignored in (".git", ".a/.hg", ".a/b/.dvc"):
        (tmp_path / ignored).mkdir(parents=True)
        (tmp_path / ignored / os.fsdecode(b"\xe9")).write_text("x")
    (tmp_path / "a.txt").write_text("x")
    assert only(tmp_path).name == "a.txt"


def test_data_raw_itself_may_be_a_link(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a.txt").write_text("x")
    (tmp_path / "raw").symlink_to("real")
    assert len(find_sources(tmp_path / "raw", FORMATS).sources) == 1


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes among its files")
@pytest.mark.parametrize("kind", ["pipe", "device", "broken link"])
def test_what_is_no_regular_file_is_refused(tmp_path, kind):
    path = tmp_path / "a.txt"
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero" if kind == "device" else "nowhere")
    for raw in (tmp_path, path) if kind != "broken link" else (tmp_path,):
        with pytest.raises(UserError, match=r"a\.txt is no regular file"):
            find_sources(raw, FORMATS)


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything"
)
def test_permission_missing(tmp_path, run):
    path = tmp_path / "a.txt"
    path.write_text("x")
    path.chmod(0)
    with pytest.raises(UserError, match="permission denied"):
        run(path)


def test_a_file_that_changes_while_it_is_read(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(bytes(3 << 20))
    stream = blocks(only(path))
    next(stream)
    with path.open("ab") as file:
        file.write(b"more")
    with pytest.raises(UserError, match="changed while it was read"):
        list(stream)


@pytest.mark.parametrize("name", ["a.parquet", "a.txt.gz"])
def test_a_file_that_is_cut_while_it_is_read(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    data = parquet([{"text": "text"}]) if name == "a.parquet" else gzip.compress(b"text")
    path.write_bytes(data)
    source = only(path)
    path.write_bytes(data[:-1])
    with pytest.raises(UserError, match="changed while it was read"):
        list(texts(source, parameters(), Tally()))


def test_a_table_that_is_cut_between_two_batches(tmp_path: Path) -> None:
    """Polars panics at it, which is no Exception."""
    path = tmp_path / "a.parquet"
    path.write_bytes(parquet([{"text": f"{n} {'x' * 100}"} for n in range(5 * PARQUET_ROWS)]))
    stream = texts(only(path), parameters(), Tally())
    next(stream)
    os.truncate(path, 1000)
    with pytest.raises(UserError, match="changed while it was read"):
        list(stream)


def zipped(path: Path, files: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return path


def test_files_of_a_zip_are_read_in_order_of_their_names(tmp_path, run):
    long = os.urandom(700_000).hex().encode()
    files = {
        "train.txt": b"last",
        "chats/b.jsonl": json_lines([{"text": "line one"}, {"text": "line two"}]),
        "a.json": b'[{"text": "first"}]',
        "t.parquet": parquet([{"text": "of a table"}]),
        "long.txt": long,
        "../../etc/x.md": b"names are no paths",
        "test.txt": b"held out",
        ".hidden.txt": b"hidden",
        "__MACOSX/a.json": b"hidden",
        "page.html": b"unknown",
        "folder/": b"",
    }
    zipped(tmp_path / "Export.ZIP", files)
    (tmp_path / "F.txt").write_text("beside it")
    texts, report = run(tmp_path)
    assert texts == [
        "names are no paths", "first", "line one", "line two", long.decode(), "of a table", "last",
        "beside it",
    ]  # fmt: skip
    assert report.held_out == ["Export.ZIP/test.txt"]
    assert report.files.skipped == {".html": 1}
    assert "Export.ZIP/chats/b.jsonl" in report.sources
    assert run(tmp_path / "Export.ZIP")[0] == texts[:-1]
    for source in find_sources(tmp_path / "Export.ZIP", FORMATS).sources:
        read: list[int] = []
        assert b"".join(blocks(source, read.append)) == files[source.name.split("/", 1)[1]]
        assert sum(read) == source.size


def test_of_an_export_of_chats_only_the_chats_are_read(tmp_path, run):
    files = {
        "conversations.json": b'[{"mapping": {"a": {"message": {"author": {"role": "user"}, '
        b'"content": {"parts": ["Hi?"]}}, "parent": "r"}, "b": {"message": {"author": {"role": '
        b'"assistant"}, "content": {"parts": ["Hello."]}}, "parent": "a"}}, "current_node": "b"}]',
        "user.json": b'{"id": "u", "email": "a@example.org"}',
        "shared_conversations.json": b'[{"id": "x", "title": "y"}]',
        "chat.html": b"<html>",
    }
    chat = render_chat([("user", "Hi?"), ("assistant", "Hello.")])
    texts, report = run(zipped(tmp_path / "export.zip", files))
    assert (texts, report.files.skipped) == ([chat], {".html": 1, ".json": 2})
    beside = {f"mine/{name}": data for name, data in files.items()} | {"books/a.txt": b"a book"}
    texts, report = run(zipped(tmp_path / "export.zip", beside))
    assert (texts, report.files.skipped) == (["a book", chat], {".html": 1, ".json": 2})


def test_a_conversations_json_alone_is_no_export(tmp_path, run):
    files = {
        "alpaca/alpaca.json": b'[{"text": "of alpaca"}]',
        "books/a.txt": b"a book",
        "books/user.json": b'["a title"]',
        "sharegpt/conversations.json": b'[{"text": "of sharegpt"}]',
    }
    texts, _ = run(zipped(tmp_path / "a.zip", files))
    assert texts == ["of alpaca", "a book", "a title", "of sharegpt"]


def test_a_zip_bomb_takes_bounded_memory(tmp_path):
    path = zipped(tmp_path / "bomb.zip", {"a.txt": bytes(80 << 20)})
    assert path.stat().st_size < 100_000
    tracemalloc.start()
    assert sum(map(len, blocks(only(path)))) == 80 << 20
    assert tracemalloc.get_traced_memory()[1] < 20 << 20
    tracemalloc.stop()


@pytest.mark.parametrize("kind", ["cut", "text", "damaged", "bzip2", "lzma", "password", "empty"])
def test_a_zip_that_cannot_be_read_is_refused_by_name(tmp_path, run, kind):
    method = {"bzip2": zipfile.ZIP_BZIP2, "lzma": zipfile.ZIP_LZMA}.get(kind, zipfile.ZIP_STORED)
    files = {"a.txt": b"the text " * 99} if kind != "empty" else {"a.html": b"x"}
    path = zipped(tmp_path / "my.zip", files, method)
    data = bytearray(path.read_bytes())
    if kind == "password":
        data[data.index(b"PK\1\2") + 8] |= 1
    if kind == "damaged":
        data[200] ^= 1
    path.write_bytes({"cut": data[:500], "text": b"no archive"}.get(kind, data))
    with pytest.raises(UserError, match=r"my\.zip"):
        run(path)
    assert not list(run.out.parent.iterdir())


UNREADABLE = {
    "a.csv": b'text\n"a quote that does not end',
    "a.json": b'[{"text": "a"},]',
    "a.jsonl": b"no JSON\nno JSON\n",
    "a.parquet": b"no parquet",
    "keys.csv": b"a,b\n1,2\n",
    "keys.jsonl": b'{"a": 1}\n',
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_cannot_be_read_in_a_zip_has_its_path_there(tmp_path, run, name):
    zipped(tmp_path / "my.zip", {"a.txt": b"text", f"folder/{name}": UNREADABLE[name]})
    with pytest.raises(UserError) as error:
        run(tmp_path)
    assert f"{tmp_path}/my.zip/folder/{name}" in str(error.value)


def test_the_list_of_a_zip_is_read_once(tmp_path, run, monkeypatch):
    path = zipped(tmp_path / "many.zip", {f"{i}.txt": f"text {i}".encode() for i in range(100)})
    opened = []
    real = zipfile.ZipFile.__init__

    def count(self, *arguments, **named):
        opened.append(arguments)
        real(self, *arguments, **named)

    monkeypatch.setattr(zipfile.ZipFile, "__init__", count)
    assert len(run(path)[0]) == 100
    assert len(opened) == 1
