"""E-mail addresses, phone numbers, payment cards and IP addresses, masked in ASCII.

- `email`: name, @, domain with a dot. Most scripts from Thai to Korean in Unicode write no spaces,
  so their letters beside an address are other words, and no address has any. A domain that ends in
  Latin letters ends with them.
- `card`: 14 to 19 digits, also in groups, with the leading digits and lengths of the large issuers
  (ISO/IEC 7812) and a correct check digit (Luhn). A tenth of other numbers of that form pass by
  chance.
- `phone`: `+` and 8 to 15 digits (ITU-T E.164), also in groups; or ten digits as in North America,
  with parentheses, hyphens or dots. Other national forms stay, because nothing tells them from any
  other number.
- `ip`: IPv4 with four numbers up to 255, one of two digits or more; IPv6 of six characters or more,
  one of them a digit. Version and section numbers in four parts look the same: 1.2.3.4 stays, and
  so does one that follows a word such as `version`, but a bare 2.0.1.15 is masked.

An ASCII letter beside a number makes it part of something else; other letters do not. Dates, times,
ISBNs, prices, timestamps and MAC addresses stay. Masks hold nothing that a pattern matches, and the
search is repeated beside each mask until nothing changes, so masking a masked text changes nothing.
"""

import ipaddress
import re
from collections.abc import Callable, Iterator, Sequence

import polars as pl

from tokenmill.data.params import Mask

_ISSUERS = re.compile(
    r"4\d{15}(?:\d{3})?|(?:5[1-5]|2[2-7])\d{14}|3[47]\d{13}|35\d{14}"
    r"|3(?:0[0-5]|[689]\d)\d{11}|6\d{15,18}",
    re.ASCII,
)
"""Matches the digits of cards of Visa; Mastercard; American Express; JCB; Diners Club; Discover,
UnionPay and Maestro."""

_VERSION = re.compile(
    r"(?:\b(?:versions?|ver|v|releases?|build|section|chapter|firmware)|§|版本|第|バージョン|버전)"
    r"[.:]?\s*$",
    re.IGNORECASE,
)

_CANDIDATE = {
    "email": r"\S@\S",
    "card": r"[2-6](?:[ -]?[0-9]){13}",
    "phone": r"\+[1-9]|[0-9]{3}[).-] ?[0-9]{3}[.-][0-9]{4}",
    "ip": r"[0-9]\.[0-9]{1,3}\.[0-9]|[0-9A-Fa-f:]:[0-9A-Fa-f]{0,4}:",
}
"""A pattern that every match of a kind contains. polars finds the texts with it, and Python
searches only these texts."""

_SPACED = "".join(filter(str.isalnum, map(chr, (*range(0xE00), *range(0x1E00, 0x2000)))))
"""Letters and digits before those of Thai, and those of Vietnamese and old Greek."""

_LATIN = "".join(filter(str.isalpha, map(chr, (*range(0x250), *range(0x1E00, 0x1F00)))))

_BEFORE = {
    "email": rf"(?<![{_SPACED}_\u200c\u200d.%+-])",
    "card": r"(?<![\w.+-])",
    "phone": r"(?<![\w.+/-])",
    "ip": r"(?<![\w.:-])",
}
"""What may not stand before a match. The end of a mask may."""

_PATTERN = {
    # joiners may stand between letters of Arabic and Indic scripts
    "email": rf"[{_SPACED}_\u200c\u200d.%+-]{{1,64}}@"
    rf"(?:[{_SPACED}](?:[{_SPACED}_\u200c\u200d-]{{0,61}}[{_SPACED}])?\.){{1,8}}"
    rf"(?:[{_LATIN}]{{2,24}}(?![{_LATIN}0-9_-])"
    rf"|[{''.join(filter(str.isalpha, _SPACED))}]{{2,24}}(?![{_SPACED}_-]))"
    # and none stays behind a mask
    rf"(?!\.[{_SPACED}_])[\u200c\u200d]?",
    "card": r"[2-6](?:[0-9]{13,18}"
    r"|[0-9]{3}(?P<gap>[ -])(?:[0-9]{4}(?P=gap)[0-9]{4}(?P=gap)[0-9]{4}"
    r"(?:(?P=gap)[0-9]{3})?|[0-9]{6}(?P=gap)[0-9]{4,5}))(?![\w-]|[.,][0-9])",
    "phone": r"(?:\+[1-9](?:[ ./-]?\(?[0-9]\)?){6,13}[ ./-]?[0-9]"
    r"|(?:\+?1[ .-]?)?(?:\([2-9][0-9]{2}\) ?|[2-9][0-9]{2}(?P<dot>[.-]))"
    r"[2-9][0-9]{2}(?(dot)(?P=dot)|-)[0-9]{4})"
    r"(?![\w/-]|[.,][0-9])",
    "ip": r"(?:(?:[0-9]{1,3}\.){3}[0-9]{1,3}(?![\w-]|\.[0-9])"
    r"|[0-9A-Fa-f:]{6,39}(?![\w:]))",
}

REACH = 640
"""More characters than a match has (an e-mail address: 602)."""

NUMBER_REACH = 64
"""More characters than a match without @ has (a phone number: 56)."""


def mask_pii(texts: pl.Series, kinds: Sequence[Mask]) -> pl.Series:
    """Replace each match of the given kinds in the texts of a batch (String, no nulls) by its mask.

    Example:
        >>> texts = pl.Series(["Write to jo@example.com or call +1 212 555 0123."])
        >>> mask_pii(texts, ["email", "phone"])[0]
        'Write to [EMAIL] or call [PHONE].'
    """
    wanted = [kind for kind in _PATTERN if kind in kinds]
    if not wanted:
        return texts
    rows = texts.str.contains("|".join(_CANDIDATE[kind] for kind in wanted)).arg_true()
    if not len(rows):
        return texts
    anywhere, behind_mask = (
        re.compile(
            "|".join(f"(?P<{kind}>{before[kind]}{_PATTERN[kind]})" for kind in wanted), re.ASCII
        )
        for before in (_BEFORE, dict.fromkeys(_BEFORE, ""))
    )
    masked = [_masked(text, anywhere, behind_mask) for text in texts.gather(rows)]
    return texts.clone().scatter(rows, masked)


def _masked(text: str, anywhere: re.Pattern[str], behind_mask: re.Pattern[str]) -> str:
    parts: list[str] = []
    begin = 0
    for match in _found(text, anywhere, 0, len(text)):
        parts += _between(text, anywhere, behind_mask, begin, match.start())
        parts.append(_mask(match))
        begin = match.end()
    parts += _between(text, anywhere, behind_mask, begin, len(text))
    return "".join(parts)


def _between(
    text: str, anywhere: re.Pattern[str], behind_mask: re.Pattern[str], begin: int, end: int
) -> list[str]:
    """The parts of what stands between two masks. Only beside a mask there can be a match now, then
    beside its mask another: the whole is not searched again for each of them."""
    before: list[str] = []
    behind: list[str] = []
    while True:
        first = behind_mask.match(text, begin, end)
        if first and _is_valid(first):
            before.append(_mask(first))
            begin = first.end()
        elif last := _last(text, anywhere, begin, end):
            behind += [text[last.end() : end], _mask(last)]
            end = last.start()
        else:
            return [*before, text[begin:end], *reversed(behind)]


def _last(text: str, pattern: re.Pattern[str], begin: int, end: int) -> re.Match[str] | None:
    """A match that the mask at `end` has made room for."""
    reach = NUMBER_REACH if text.rfind("@", max(begin, end - REACH), end) < 0 else REACH
    return next(_found(text, pattern, max(begin, end - reach), end), None)


def _found(text: str, pattern: re.Pattern[str], begin: int, end: int) -> Iterator[re.Match[str]]:
    while match := pattern.search(text, begin, end):
        begin = match.end()
        if _is_valid(match):
            yield match
        elif match.lastgroup == "ip":  # in `CC:4111111111111111`, which is none, is a card
            begin = match.start() + 1


def _is_valid(match: re.Match[str]) -> bool:
    kind = str(match.lastgroup)
    return kind not in _CHECKS or _CHECKS[kind](match)


def _mask(match: re.Match[str]) -> str:
    return f"[{str(match.lastgroup).upper()}]"


def _is_card(match: re.Match[str]) -> bool:
    digits = re.sub(r"[ -]", "", match[0])
    return _ISSUERS.fullmatch(digits) is not None and luhn(digits)


def luhn(digits: str) -> bool:
    """Whether the last of the digits is the check digit of the others (ISO/IEC 7812-1, annex B)."""
    doubled = [int(digit) * 2 for digit in digits[-2::-2]]
    others = sum(map(int, digits[-1::-2]))
    return (others + sum(number // 10 + number % 10 for number in doubled)) % 10 == 0


def _is_ip_address(match: re.Match[str]) -> bool:
    try:
        address = ipaddress.ip_address(match[0])
    except ValueError:
        return False
    if address.version == 6:
        return any(character.isdigit() for character in match[0])
    return len(match[0]) > len("1.2.3.4") and not _VERSION.search(
        match.string[max(0, match.start() - 16) : match.start()]
    )


_CHECKS: dict[str, Callable[[re.Match[str]], bool]] = {"card": _is_card, "ip": _is_ip_address}
"""The condition that a match must satisfy besides its pattern."""
