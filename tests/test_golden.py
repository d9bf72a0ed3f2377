"""Nobody changes the bytes of clean text or of tokens by accident."""

import json
from typing import Any

import pytest

from tests.golden import FILE, golden
from tokenmill.data.readers import FORMATS
from tokenmill.data.sources import COMPRESSIONS
from tokenmill.formats.shards import CLEAN_FORMAT
from tokenmill.formats.token_file import TOKEN_FORMAT

NEW = "write the new bytes by `python -m tests.golden` and say why in CHANGELOG.md"
KEYS = {
    "text": f"CLEAN_FORMAT {CLEAN_FORMAT}",
    "conversations": f"CLEAN_FORMAT {CLEAN_FORMAT}",
    "tokens": f"CLEAN_FORMAT {CLEAN_FORMAT}, TOKEN_FORMAT {TOKEN_FORMAT}",
}
NUMBERS = {
    "text": "CLEAN_FORMAT in src/tokenmill/formats/shards.py",
    "conversations": "CLEAN_FORMAT in src/tokenmill/formats/shards.py",
    "tokens": "TOKEN_FORMAT in src/tokenmill/formats/token_file.py",
}
"""The number to raise where bytes change."""


@pytest.fixture(scope="module")
def now() -> dict[str, Any]:
    return golden()


@pytest.mark.parametrize("kind", KEYS)
def test_bytes_change_only_with_their_number(now: dict[str, Any], kind: str) -> None:
    known = json.loads(FILE.read_text())
    assert KEYS[kind] in known, f"tests/golden.json has nothing under {KEYS[kind]}: {NEW}"
    expected = known[KEYS[kind]][kind]
    changed = sorted(n for n in expected | now[kind] if expected.get(n) != now[kind].get(n))
    assert not changed, (
        f"the {kind} of {', '.join(changed)} is no longer what it was; if that is meant, raise "
        f"{NUMBERS[kind]}, {NEW}"
    )


def test_every_format_and_compression_is_there(now: dict[str, Any]) -> None:
    names = list(now["text"])
    for ending in (*FORMATS, *COMPRESSIONS):
        assert any(name.endswith(ending) for name in names), ending
    assert "g.txt" in names
    assert len(set(now["text"].values())) == len(names)
