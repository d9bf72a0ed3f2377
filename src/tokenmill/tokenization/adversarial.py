"""Strings that tokenizers disagree about: what a fast encoder must get right before it is believed."""

import random

from tokenmill.tokenization.tokenizer import END_OF_TEXT

FRAGMENTS = (
    *(chr(code) for code in range(0x20)),  # control characters, NUL among them
    *("\x7f", "\x85", "\xa0", "\xad", "\u1680", "\u180e", "\u2003", "\u2028", "\u3000", "\ufeff", "\ufffd", "\uffff"),
    *("\u200b", "\u200c", "\u200d", "\u2060", "\u200e", "\u202e"),  # zero width, direction
    *("e\u0301", "\u0301", "a\u0308\u0323", "\u0e33", "क्षि", "한", "각"),  # combining marks
    *("'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "’s", "don't", "''", "'"),  # contractions
    *("0", "1234567890", "3.14", "١٢٣", "½", "Ⅷ", "²", "1,000", "0x1F", "𝟘"),
    *(
        "Hello",
        " world",
        "ÜBER",
        "straße",
        "İ",
        "ſ",
        "ﬁ",
        "Привет",
        "γεια",
        "שלום",
        "مرحبا",
        "你好",
        "こんにちは",
        "ไทย",
    ),
    *("🙂", "👩‍👩‍👧‍👦", "🇫🇷", "👍🏽", "☃️", "\U0001f9d1", "\U000e0001", "\U0010ffff"),
    *("!?", "...", "---", "=" * 9, "/*", "{}", "<|", "|>", "_", "__init__", "https://a.b/c?d=e&f#g", "a@b.c", "\\"),
    *(" ", "  ", "   ", "\t", "\n", "\r\n", "\n\n", " \n", "\n ", "\u00a0 "),
    *(END_OF_TEXT, "<|endoftext", "endoftext|>", f" {END_OF_TEXT}", "<|im_start|>", "[CLS]", "<s>"),
)


def adversarial_texts(count: int = 400, seed: int = 0) -> list[str]:
    """Every fragment alone, long runs, and `count` random mixtures; always the same."""
    random_source = random.Random(seed)
    runs = [
        unit * length
        for unit in ("a", " ", "\n", "é", "你", "🙂", "\x00", "' ", "ab", "1", "!", "\u0301")
        for length in (2, 3, 33, 1000)
    ]
    mixed = ["".join(random_source.choices(FRAGMENTS, k=random_source.randint(2, 40))) for _ in range(count)]
    points = [
        "".join(chr(random_source.choice((code, code % 0x3000, code % 0x250))) for code in _scalars(random_source))
        for _ in range(count // 4)
    ]
    return ["", *FRAGMENTS, *runs, *mixed, *points]


def _scalars(random_source: random.Random) -> list[int]:
    """Forty random code points without surrogates."""
    drawn = (random_source.randrange(0x110000) for _ in range(40))
    return [code for code in drawn if not 0xD800 <= code < 0xE000]
