"""Text of unknown origin, shown as it is: cut to a length, and nothing in it invisible or able to turn a line round."""

import unicodedata

from markupsafe import Markup, escape

SIGNS = {" ": "␣", "\n": "↵", "\t": "⇥"}
"""What stands for white space in a token."""
UNSEEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}
"""Unicode categories that a reader cannot see or that change how the rest is laid out (General_Category, UAX 44)."""


def excerpt(text: str, length: int = 300) -> str:
    """The beginning of a text: its spaces and line breaks kept, all else that is invisible shown by its code."""
    return visible(text[:length].rstrip() + " …" if len(text) > length else text)


def visible(text: str) -> str:
    """A text with its spaces and line breaks, all else that is invisible shown by its code."""
    return "".join(char if char in SIGNS else _seen(char) for char in text)


def token_text(token: bytes) -> str:
    """A token readably: ␣ for a space, ↵ for a line break; bytes that are no UTF-8 by themselves as \\xE2\\x80."""
    try:
        text = token.decode()
    except UnicodeDecodeError:
        return "".join(f"\\x{byte:02X}" for byte in token)
    return "".join(SIGNS.get(char) or _seen(char) for char in text)


def token_markup(token: bytes) -> Markup:
    """`token_text` with its signs marked, so that a page can show them paler than the text."""
    shown = escape(token_text(token))
    for sign in SIGNS.values():
        shown = shown.replace(sign, Markup("<i>{}</i>").format(sign))
    return shown


def _seen(char: str) -> str:
    if unicodedata.category(char) not in UNSEEN:
        return char
    code = ord(char)
    return chr(0x2400 + code) if code < 0x20 else f"⟨U+{code:04X}⟩"
