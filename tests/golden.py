"""The bytes that the data side makes of one small corpus: `python -m tests.golden` writes them to
tests/golden.json, under the numbers of the formats.

The corpus has a file of every format and compression, and one in an old encoding. Of the clean text
the content of the columns is hashed, not the bytes of parquet, which another version of polars may
write otherwise; of the tokens the bytes of the .bin files.
"""

import hashlib
import json
import tempfile
from pathlib import Path

import polars as pl

from tests.data.material import PACK, json_lines, parameters, parquet
from tests.imports import ROOT
from tests.tokens.packing import pack_here
from tokenmill.core.files import sha256_of
from tokenmill.data.clean import clean
from tokenmill.executors.threads import ThreadExecutor
from tokenmill.formats import shards
from tokenmill.formats.shards import CLEAN_FORMAT
from tokenmill.formats.token_file import SPLITS, TOKEN_FORMAT, token_file
from tokenmill.tokens.params import TokenizeParams, TokenizerParams
from tokenmill.tokens.train_tokenizer import train_tokenizer
from tokenmill.tokens.unpack import unpack

FILE = ROOT / "tests" / "golden.json"

PROSE = (
    "The mill stood by the river.\r\n\r\nIts  wheel — so they say — turned “day and night”…",
    "Write to miller@example.org or call +1 212 555 0123.\n\nThis site uses cookies.",
    "Déjà vu: e\u0301te\u0301, naïve café, 5 € and ½ litre.\u200b\n\n你好，世界。 🙂 Привет!",
    "Its wheel — so they say — turned “day and night”…\n\n\tdef mill(x):\n\t\treturn x + 1",
)
RUSSIAN = "Мельница стояла у реки. Её колесо вертелось день и ночь, и мельник пел песни.\n"
CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Who turns the wheel?"},
    {"role": "assistant", "content": "The river."},
]


def write_corpus(folder: Path) -> None:
    """A file of every format, of every compression, and one in KOI8-R."""
    text = "\n\n".join(PROSE)
    rows = [{"text": f"{number}. {one}"} for number, one in enumerate(PROSE)]
    table = "text,n\n" + "".join(f'"{one},"" csv",{n}\n' for n, one in enumerate(PROSE))
    contents = {
        "a.txt": text.encode(),
        "b.md": f"# Mill\n\n{text}".replace("wheel", "wheel (md)").encode(),
        "c.jsonl": json_lines(rows) + b"no record\n" + json_lines([{"text": None}]),
        "d.json": json.dumps([{"content": f"json {one}"} for one in PROSE]).encode(),
        "e.csv": table.encode(),
        "f.parquet": parquet([{"text": f"parquet {one}"} for one in PROSE]),
        "g.txt": RUSSIAN.encode("koi8-r"),
        "i.ndjson": json_lines([{"text": f"ndjson {one}"} for one in PROSE]),
        "h.txt": "A broken byte: café, but ".encode("cp1252") + "été.".encode(),
    }
    for (name, data), ending in zip(list(contents.items())[:4], list(PACK)[1:], strict=True):
        other = data.replace(b"wheel", f"wheel{ending}".encode())
        contents[f"packed/{name}{ending}"] = PACK[ending](other)
    for name, data in contents.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def cleaned(raw: Path, out: Path) -> dict[str, str]:
    """By file, the SHA-256 of its clean documents: text, source and id of each in order."""
    params = parameters(
        text_file="paragraph",
        drop_boilerplate=True,
        mask=["email", "phone", "card", "ip"],
        min_chars=2,
    )
    clean(raw=raw, out=out, params=params, executor=ThreadExecutor(threads=2))
    table = pl.concat(shards.batches(out, list(shards.SCHEMA)))
    return {
        str(documents["source"][0]): hashlib.sha256(
            json.dumps(documents.rows()).encode()
        ).hexdigest()
        for documents in table.partition_by("source", maintain_order=True)
    }


def golden() -> dict[str, dict[str, str]]:
    """What the code makes now: of clean text and of conversations by file, of tokens by split."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_corpus(folder / "raw")
        (folder / "chats").mkdir()
        (folder / "chats" / "chat.jsonl").write_bytes(json_lines([{"messages": CHAT}]))
        text = cleaned(folder / "raw", folder / "clean")
        chats = cleaned(folder / "chats", folder / "clean-chats")
        tokenizer = folder / "tokenizer.json"
        learn = TokenizerParams(type="bpe", vocab_size=300, sample_bytes=10**6)
        train_tokenizer(folder / "clean", tokenizer, learn)
        split = TokenizeParams(split="hash", val_fraction=0.3)
        results = folder / "results"
        pack_here(folder / "clean", tokenizer, folder / "packed", split, results=results)
        unpack(folder / "packed", folder / "tokens")
        files = [token_file(folder / "tokens", split) for split in SPLITS]
        tokens = {file.name: sha256_of(file) for file in files}
    return {"text": text, "conversations": chats, "tokens": tokens}


def main() -> None:
    """Write what the code makes now under the numbers of its formats, and keep the others."""
    now, known = golden(), json.loads(FILE.read_text()) if FILE.exists() else {}
    clean_format, token_format = f"CLEAN_FORMAT {CLEAN_FORMAT}", f"TOKEN_FORMAT {TOKEN_FORMAT}"
    known[clean_format] = {"text": now["text"], "conversations": now["conversations"]}
    known[f"{clean_format}, {token_format}"] = {"tokens": now["tokens"]}
    FILE.write_text(json.dumps(known, indent=2) + "\n")


if __name__ == "__main__":
    main()
