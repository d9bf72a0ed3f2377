"""The tokenizers on which the tests of their readers work."""

from tests.tokens.conftest import bpe_file, char_file, prose

__all__ = ["bpe_file", "char_file", "prose"]
