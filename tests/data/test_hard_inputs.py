"""Inputs that break naive readers, through the whole stage; memory is that of a real process."""

import gzip
import json
import re
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from tests.data.material import PACK, json_lines
from tokenmill.core.errors import UserError
from tokenmill.words.cleaning import damage_warning

STATUS = Path("/proc/self/status")

IMPORTS = """
import sys
from pathlib import Path
from tests.data.material import parameters
from tokenmill.data.clean import clean
from tokenmill.executors.threads import ThreadExecutor
"""
CHILD = """
raw, out = map(Path, sys.argv[1:])
report = clean(raw=raw, out=out, params=parameters(), executor=ThreadExecutor(threads=2))
lines = Path("/proc/self/status").read_text().splitlines()
peak = next(line for line in lines if line.startswith("VmHWM"))
print(report.documents.read, report.documents.kept, int(peak.split()[1]) >> 10)
"""


def clean_in_a_process(raw: Path, out: Path) -> tuple[int, int, int]:
    """Documents read and kept, and the peak of its memory in MiB."""
    if not STATUS.exists():
        pytest.skip("this system does not tell a process's peak memory")
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS + CHILD, str(raw), str(out)],
        capture_output=True,
        text=True,
        check=True,
    )
    read, kept, peak = map(int, done.stdout.split())
    return read, kept, peak


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", ":".join(path for path in sys.path if path))


@pytest.mark.slow
def test_one_line_of_200_megabytes_is_dropped(tmp_path):
    raw = tmp_path / "a.jsonl"
    raw.write_text(
        '{"text": "before"}\n{"text": "'
        + "All work and no play. " * 9_500_000
        + '"}\n{"text": "after"}\n'
    )
    assert raw.stat().st_size > 200_000_000
    read, kept, peak = clean_in_a_process(raw, tmp_path / "out")
    assert (read, kept) == (3, 2)
    assert peak < 1000


@pytest.mark.parametrize(
    ("name", "data", "sentence"),
    [
        ("deep.json", lambda: b"[" * 1_000_000 + b"]" * 1_000_000, "nested deeper than 200 levels"),
        (
            "deep.json",
            lambda: b'[{"text": "[[[["}, ' + b'{"a":' * 300 + b"1" + b"}" * 300 + b"]",
            "nested deeper",
        ),
        (
            "long.json.gz",
            lambda: gzip.compress(b'["' + b"a" * (40 << 20) + b'"]'),
            "a value of more than",
        ),
        (
            "header.csv.gz",
            lambda: gzip.compress(b"text" + b",a" * (4 << 20) + b"\n"),
            "its header has more than",
        ),
        (
            "damaged.parquet",
            lambda: b"PAR1" + bytes(99) + b"PAR1",
            "is not a readable parquet file",
        ),
    ],
)
def test_file_beyond_a_bound_is_refused_by_name(tmp_path, run, name, data, sentence):
    (tmp_path / name).write_bytes(data())
    with pytest.raises(UserError, match=sentence) as refused:
        run(tmp_path)
    assert name in str(refused.value)
    assert len(str(refused.value)) < 500


def test_brackets_in_strings_are_no_levels(tmp_path, run):
    texts = ["[{" * 500, '\\"[' * 500, "\\\\", '"' * 301, "plain"]
    (tmp_path / "a.json").write_text(json.dumps([{"text": text} for text in texts]))
    assert run(tmp_path, mode="none", min_chars=1)[0] == texts


@pytest.mark.parametrize("depth", [200, 300, 900, 100_000])
def test_deeply_nested_record_is_dropped_and_counted(tmp_path, run, depth):
    deep = b'{"a": ' + b"[" * depth + b"]" * depth + b"}"
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "one", "a": 1}\n' + deep + b'\n{"text": "two"}\n')
    documents, report = run(tmp_path)
    assert documents == ["one", "two"]
    assert report.documents.read == 3
    (tmp_path / "a.jsonl").write_bytes(b'{"a": "one"}\n' + deep + b'\n{"a": "two"}\n')
    documents, report = run(tmp_path, columns=["a"])
    assert [text for text in documents if text] == ["one", "two"]


@pytest.mark.slow
def test_text_without_a_line_break(tmp_path):
    raw = tmp_path / "a.txt"
    with raw.open("w") as file:
        file.writelines(f"{i} bottles of beer on the wall, " * 1_000 for i in range(7_200))
    read, kept, peak = clean_in_a_process(raw, tmp_path / "out")
    assert raw.stat().st_size > 240_000_000
    assert (read, kept) == (raw.stat().st_size >> 20,) * 2
    assert peak < 650, "about 400 at any size, and three copies of it are 720"


@pytest.mark.slow
def test_half_a_gigabyte_of_json_lines_without_a_line_break(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "good"}\n')
    with (tmp_path / "b.jsonl").open("wb") as file:
        file.write(b'{"text": "before"}\n')
        file.truncate(1 << 29)
    read, kept, peak = clean_in_a_process(tmp_path, tmp_path.parent / "out")
    assert (read, kept) == (3, 2)
    assert peak < 500


@pytest.mark.slow
@pytest.mark.parametrize(("name", "megabytes"), [("bomb.txt.gz", 400), ("bomb.jsonl.gz", 400)])
def test_an_archive_that_grows_a_thousandfold(tmp_path, name, megabytes):
    raw = tmp_path / name
    with gzip.GzipFile(raw, "wb", compresslevel=9) as archive:
        archive.write(b'{"text": "before"}\n')
        for _ in range(megabytes):
            archive.write(b"bomb " * 200_000)
        archive.write(b'\n{"text": "after"}\n')
    assert raw.stat().st_size < megabytes * 1500
    _, kept, peak = clean_in_a_process(raw, tmp_path / "out")
    assert kept >= 2
    assert peak < megabytes, "about 250 at any size, and what it holds does not fit"


@pytest.mark.slow
def test_thousands_of_small_files(tmp_path):
    for i in range(5_000):
        (tmp_path / f"{i:05}.txt").write_text(f"Text number {i}.")
    read, kept, peak = clean_in_a_process(tmp_path, tmp_path.parent / "out")
    assert (read, kept) == (5_000, 5_000)
    assert peak < 400


@pytest.mark.parametrize("ending", PACK)
def test_an_empty_file_among_full_ones(tmp_path, run, ending):
    for name, data in (("a", json_lines(["one"])), ("b", b""), ("c", json_lines(["two"]))):
        (tmp_path / f"{name}.jsonl{ending}").write_bytes(PACK[ending](data))
    (tmp_path / f"d.jsonl{ending}").touch()
    documents, report = run(tmp_path)
    assert documents == ["one", "two"]
    assert report.documents.read == 2


def test_strange_bytes_in_strange_names(tmp_path, run):
    folder = tmp_path / "a folder" / "ünïcödé"
    folder.mkdir(parents=True)
    (folder / "nul \u4f60.jsonl").write_bytes(
        b'{"text": "nul\\u0000 here"}\r\n{"text": "lone \\ud800 half"}\r\n'
    )
    (folder / "utf-16.txt").write_bytes("Größe\r\nzwei".encode("utf-16"))
    (folder / "with mark.txt").write_bytes(b"\xef\xbb\xbfmark\x00ed")
    documents, report = run(tmp_path)
    assert documents == ["nul here", "lone half", "Größe\nzwei", "marked"]
    assert report.invalid_utf8 == 1
    assert "data.encoding" in damage_warning(report)
    assert json.dumps(report.model_dump(by_alias=True))


@pytest.mark.skipif(sys.platform != "linux", reason="mounts a small disk")
def test_a_full_disk_keeps_the_earlier_result(tmp_path):
    unshare = ["unshare", "--user", "--map-root-user", "--mount"]
    if subprocess.run(
        [*unshare, "mount", "-t", "tmpfs", "x", tmp_path], check=False, capture_output=True
    ).returncode:
        pytest.skip("no disk can be mounted here")
    raw = tmp_path.parent / "raw.jsonl"
    noise = Random(0)
    raw.write_bytes(json_lines([noise.randbytes(5000).hex() for _ in range(1000)]))
    code = """
from tokenmill.core.errors import UserError
out = Path(sys.argv[2])
out.mkdir()
(out / "part-00000.parquet").write_text("what was there")
try:
    clean(raw=Path(sys.argv[1]), out=out, params=parameters(), executor=ThreadExecutor(threads=2))
except UserError as error:
    print(error)
print(*(str(path.relative_to(out.parent)) for path in sorted(out.parent.rglob("*"))))
"""
    mount = 'mount -t tmpfs -o size=2m small "$0" && exec "$@"'
    command = [
        *unshare,
        "sh",
        "-c",
        mount,
        tmp_path,
        sys.executable,
        "-c",
        IMPORTS + code,
        raw,
        tmp_path / "clean",
    ]
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, check=True
    )
    assert re.search(
        r"clean: No space left on device; it takes about 10,\d{3},\d{3} bytes", done.stdout
    )
    assert done.stdout.splitlines()[-1] == "clean clean/part-00000.parquet"
