"""What every token spells, in bytes."""

from tokenmill.tokenization.tokenizer import TextTokenizer

_PRINTABLE = (*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1))
BYTE_OF = {chr(byte): byte for byte in _PRINTABLE} | {
    chr(0x100 + number): byte for number, byte in enumerate(sorted(set(range(256)) - set(_PRINTABLE)))
}
"""The byte that a character stands for in a byte-level vocabulary: itself where Latin-1 can print it, else one of
U+0100 … (Radford et al. 2019, GPT-2's encoder)."""


def token_bytes(tokenizer: TextTokenizer) -> list[bytes]:
    """The UTF-8 bytes of every token, in the order of their ids; end-of-text spells nothing."""
    spelled = [b""] * tokenizer.vocab_size
    for token, token_id in tokenizer.backend.get_vocab(with_added_tokens=False).items():
        if token_id != tokenizer.eot_id:
            is_bpe = tokenizer.type == "bpe"
            spelled[token_id] = bytes(BYTE_OF[char] for char in token) if is_bpe else token.encode()
    return spelled
