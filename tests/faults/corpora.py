"""Hostile text, read by the stage `clean` with random parameters: it is cleaned, dropped, or
refused by name."""

import bz2
import gzip
import io
import json
import lzma
import multiprocessing
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import zstandard

from tests.faults import trial
from tests.faults.material import CONSUMERS, Quiet
from tests.faults.table import Result
from tests.pipeline.project import change_params

MB = 1 << 20
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def lines(*records: object) -> bytes:
    """JSON lines."""
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def table(**columns: Any) -> bytes:
    """A parquet file."""
    file = io.BytesIO()
    pl.DataFrame(columns).write_parquet(file)
    return file.getvalue()


def chat(*messages: object) -> bytes:
    """One conversation as JSON lines."""
    return lines({"messages": list(messages)})


def random_bytes(count: int) -> bytes:
    """Always the same ones."""
    return random.Random(0).randbytes(count)


TEXTS: dict[str, Callable[[], bytes]] = {
    "nothing": lambda: b"",
    "zeros": lambda: bytes(20 * MB),
    "line breaks": lambda: b"\n" * (20 * MB),
    "one letter": lambda: b"a" * (40 * MB),
    "one word of many letters": lambda: "".join(
        random.Random(0).choices(LETTERS, k=20 * MB)
    ).encode(),
    "one line of many words": lambda: b"so it is " * (4 * MB),
    "a million short lines": lambda: b"a\n" * MB,
    "random bytes": lambda: random_bytes(8 * MB),
    "half of a UTF-8 character": lambda: b"\xe2\x82" * MB,
    "UTF-16": lambda: ("\ufeff" + "half a loaf\n" * 9999).encode("utf-16-le"),
    "UTF-32": lambda: ("\ufeff" + "half a loaf\n" * 9999).encode("utf-32-be"),
    "surrogates": lambda: b"\xed\xa0\x80\xed\xb0\x80 " * 99_999,
    "overlong UTF-8": lambda: b"\xc0\xaf\xf0\x80\x80\xaf " * 99_999,
    "commands to a terminal": lambda: b"\x1b]0;owned\x07\x1b[2J\x9b31m text\r\n" * 9999,
    "text from right to left": ("\u202e" + "abc \u2066def\u2069 \u200f" * 99_999).encode,
    "a letter with a million accents": ("a" + "\u0301" * MB).encode,
    "what has no width": lambda: "\u200b\u200d\ufeff".encode() * MB,
    "one family": lambda: "👨\u200d👩\u200d👧\u200d👦".encode() * 99_999,
    "ligatures that grow": lambda: "\ufdfa".encode() * MB,
    "code points without a meaning": lambda: "\ufffe\U0010ffff\ue000".encode() * 99_999,
    "Russian as KOI8-R": lambda: ("Всё смешалось в доме Облонских. " * 9999).encode("koi8-r"),
    "Japanese as Shift-JIS": lambda: ("国境の長いトンネルを抜けると雪国であった。" * 9999).encode(
        "shift-jis"
    ),
    "two encodings": lambda: "Müller ".encode() * 9999 + "Müller ".encode("latin-1") * 9999,
    "other ends of lines": lambda: "a\rb\u2028c\u2029d\u0085e\x0bf\x0c".encode() * 99_999,
}

RECORDS: dict[str, tuple[str, Callable[[], bytes]]] = {
    "lists in lists": (".jsonl", lambda: b"[" * MB + b"]" * MB),
    "maps in maps": (".jsonl", lambda: b'{"a":' * 99_999 + b"1" + b"}" * 99_999),
    "a string of 100 MB": (".jsonl", lambda: b'{"text": "' + b"a" * (100 * MB) + b'"}'),
    "a map of a million keys": (".jsonl", lambda: lines({str(key): key for key in range(MB)})),
    "numbers beyond all bounds": (
        ".jsonl",
        lambda: b'{"text": 1e400}\n{"text": ' + b"9" * 99_999 + b"}\n",
    ),
    "NaN": (".jsonl", lambda: b'{"text": NaN}\n{"text": Infinity}\n'),
    "the same key twice": (".jsonl", lambda: b'{"text": "a b c", "text": 1}\n' * 999),
    "half a record": (".jsonl", lambda: lines({"text": "it is so"}) + b'{"text": "it is'),
    "no records": (".jsonl", lambda: b'null\ntrue\n1\n"a"\n[]\n{}\n' * 999),
    "lone surrogates": (".jsonl", lambda: b'{"text": "\\ud800 \\udc00 a"}\n' * 999),
    "a mark at the start": (".jsonl", lambda: b"\xef\xbb\xbf" + lines({"text": "it is so"})),
    "roles that are numbers": (
        ".jsonl",
        lambda: chat({"role": 1, "content": "a"}, {"role": None, "content": "b"}),
    ),
    "contents that are lists": (
        ".jsonl",
        lambda: chat({"role": "user", "content": [1, {"text": "a"}, None]}),
    ),
    "messages that are none": (".jsonl", lambda: chat(1, None, "a", [], {})),
    "a conversation of 100,000 turns": (
        ".jsonl",
        lambda: chat(*[{"role": "user", "content": "a"}] * 99_999),
    ),
    "a list of a million lists": (".json", lambda: b"[" + b"[]," * MB + b"[]]"),
    "deep": (".json", lambda: b"[" * 99_999),
    "half a list": (".json", lambda: b'[{"text": "it is so"}, {"text": "it'),
    "more behind the end": (".json", lambda: b'[{"text": "it is so"}]]]}}'),
    "not JSON": (".json", lambda: random_bytes(MB)),
    "a header alone": (".csv", lambda: b"text\n"),
    "100,000 columns": (
        ".csv",
        lambda: b",".join(b"c%d" % n for n in range(99_999)) + b"\n" + b"1," * 99_999,
    ),
    "a quote that never ends": (".csv", lambda: b'text\n"' + b"a,b\n" * (10 * MB)),
    "a field of 40 MB": (".csv", lambda: b"text\n" + b"a" * (40 * MB) + b"\n"),
    "rows of other lengths": (".csv", lambda: b"text,b\n" + b"a\na,b,c,d\n\n" * 9999),
    "zeros in a table": (".csv", lambda: b"text\na\0b\n" * 999),
    "no parquet": (".parquet", lambda: b"PAR1" + random_bytes(9999) + b"PAR1"),
    "a footer that promises much": (
        ".parquet",
        lambda: b"PAR1" + b"\xff" * 64 + b"\xff\xff\xff\x7fPAR1",
    ),
    "half a parquet file": (".parquet", lambda: table(text=["it is so"] * 9999)[:700]),
    "no rows": (".parquet", lambda: table(text=pl.Series([], dtype=pl.String))),
    "numbers only": (".parquet", lambda: table(text=[1, 2, None])),
    "lists and maps": (".parquet", lambda: table(text=[["a"], []], b=[{"c": 1}, None])),
    "10,000 columns": (".parquet", lambda: table(**{f"c{n}": ["a"] for n in range(9999)})),
    "a cell of 300 MB": (".parquet", lambda: table(text=["a" * (300 * MB)])),
    "40 cells of 4 MB": (".parquet", lambda: table(text=["so it is " * (MB // 2)] * 40)),
}

ARCHIVES: dict[str, Callable[[bytes], bytes]] = {
    ".gz": lambda data: gzip.compress(data, 1),
    ".zst": lambda data: zstandard.compress(data, 3),
    ".bz2": lambda data: bz2.compress(data, 1),
    ".xz": lambda data: lzma.compress(data, preset=0),
}

BROKEN: dict[str, Callable[[bytes], bytes]] = {
    "cut": lambda data: data[: len(data) // 2],
    "with more behind it": lambda data: data + b"more",
    "twice": lambda data: data * 2,
    "in its middle changed": lambda data: (
        data[: len(data) // 2] + b"\xff\xff\xff\xff" + data[len(data) // 2 + 4 :]
    ),
    "of another kind": lambda data: b"PK\x03\x04" + data,
}


def _links(raw: Path) -> None:
    (raw / "b.txt").symlink_to("/dev/zero")


def _out(raw: Path) -> None:
    (raw / "b.txt").symlink_to("/etc/passwd")


def _circle(raw: Path) -> None:
    (raw / "b").symlink_to(raw)


def _pipe(raw: Path) -> None:
    os.mkfifo(raw / "b.txt")


def _folder(raw: Path) -> None:
    (raw / "b.txt").mkdir()


def _names(raw: Path) -> None:
    for name in (
        b"a\nb.txt",
        b"\x1b[2J.txt",
        b"-rf.txt",
        b"$(touch x).txt",
        b"x" * 240 + b".txt",
    ):
        Path(raw, os.fsdecode(name)).write_text("a text of its own\n")


def _other_bytes(raw: Path) -> None:
    Path(raw, os.fsdecode(b"\xff\xfe.txt")).write_text("a text of its own\n")


def _many(raw: Path) -> None:
    for number in range(5000):
        (raw / f"{number}.txt").write_text("")


FOLDERS: dict[str, Callable[[Path], None]] = {
    "a link to a device": _links,
    "a link out of it": _out,
    "a link to itself": _circle,
    "a pipe": _pipe,
    "a folder with a file's name": _folder,
    "hostile names": _names,
    "a name that is not UTF-8": _other_bytes,
    "5,000 empty files": _many,
}

PARAMETERS: dict[str, list[Any]] = {
    "clean.mode": ["strict", "balanced", "lenient", "none"],
    "clean.text_file": ["file", "paragraph", "line"],
    "clean.near_duplicates.enabled": [False, True],
    "clean.filters.gopher_repetition": [False, True],
    "clean.filters.fineweb_lines": [False, True],
    "clean.drop_boilerplate": [False, True],
    "clean.mask": [[], ["email", "phone", "card", "ip"]],
    "clean.filters.max_symbol_fraction": [None, 0.3],
    "clean.filters.languages": [None, ["en"]],
}


def _cases() -> dict[str, Callable[[Path], None]]:
    """Each by its name: what writes the files into a folder."""
    files = {f"{name}.txt": (".txt", make) for name, make in TEXTS.items()}
    files |= {f"{name}.md": (".md", TEXTS[name]) for name in ("one letter", "random bytes")}
    files |= {f"{name}{ending}": (ending, make) for name, (ending, make) in RECORDS.items()}
    for archive, compress in ARCHIVES.items():
        files[f"a thousandfold archive{archive}"] = (
            f".txt{archive}",
            lambda c=compress: c(bytes(300 * MB)),
        )
        for how, damage in BROKEN.items():
            whole = b"It is what it is.\n" * 99_999
            files[f"an archive {how}{archive}"] = (
                f".txt{archive}",
                lambda c=compress, d=damage, w=whole: d(c(w)),
            )

    def writer(ending: str, make: Callable[[], bytes]) -> Callable[[Path], None]:
        def write(raw: Path) -> None:
            Path(raw, f"b{ending}").write_bytes(make())

        return write

    return {name: writer(*case) for name, case in files.items()} | FOLDERS


def trials(quiet: Quiet, chance: random.Random, count: int, match: str = "") -> Iterator[Result]:
    """Every case with random parameters, in a random order, until there are `count`."""
    cases = {name: write for name, write in _cases().items() if match in name}
    names: list[str] = []
    for _ in range(count):
        names = names or chance.sample(sorted(cases), len(cases))
        name = names.pop()
        values = {parameter: chance.choice(among) for parameter, among in PARAMETERS.items()}
        yield _one(quiet, name, cases[name], values)


def _apart(work: Callable[[], None]) -> None:
    """Do it in a process of its own: threads that it starts would be missing in the trials, which
    are forked."""
    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    process.join()
    assert process.exitcode == 0


def _one(quiet: Quiet, name: str, write: Callable[[Path], None], values: dict[str, Any]) -> Result:
    with quiet.copy() as root:
        raw = root.parent / "raw"
        raw.mkdir()
        (raw / "a.txt").write_text("A text that everybody can read.\n")
        _apart(lambda: write(raw))
        change_params(root / "params.yaml", {"data.raw": str(raw), **values})
        outcome = trial.run(root, CONSUMERS["clean"])
        ending = outcome.ending
        if ending == "refused" and "error: " not in outcome.said:
            ending = "wrong"
        kept = b"".join(path.read_bytes() for path in (root / "data/clean").rglob("*.parquet"))
        if b"root:x:0" in kept:
            ending = "wrong"
    changed = ", ".join(
        f"{key.removeprefix('clean.')}={value}" for key, value in values.items() if value
    )
    return Result(
        "corpora", f"{name} ({changed})", "other" if ending == "done" else ending, outcome.said
    )
