"""Numbers as a page shows them: thin spaces between thousands, as many digits as a reader can use."""

from decimal import Decimal

THIN = "\u202f"
"""A narrow space at which no line breaks."""


def whole(value: int) -> str:
    """1234567 as 1 234 567."""
    return f"{value:,}".replace(",", THIN)


def counted(value: int, thing: str) -> str:
    """A number with its noun: 1 document, 11 000 documents; `thing` has a regular plural."""
    return f"{whole(value)} {thing}" + ("" if value == 1 else "s")


def decimal(value: float, places: int = 2) -> str:
    """A number with a fixed number of decimals: 1 234.50."""
    return f"{value:,.{places}f}".replace(",", THIN)


def signed(value: float, places: int = 2) -> str:
    """A difference, with its sign: +0.50, −1 234.50; a zero has none."""
    text = decimal(abs(value), places)
    return text if not float(f"{value:.{places}f}") else ("+" if value > 0 else "−") + text


def figures(value: float, digits: int = 3) -> str:
    """A number with so many significant digits, however small: 0.00430, 12.3, 1 230."""
    return f"{Decimal(f'{value:#.{digits}g}'):,f}".replace(",", THIN)


def percent(share: float) -> str:
    """A share of one with a decimal below 99.95 % and above 0.05 %; what is neither nothing nor all never looks so."""
    if 0 < share < 0.0005:
        return f"<{THIN}0.1{THIN}%"
    if 0.9995 <= share < 1:
        return f">{THIN}99.9{THIN}%"
    return f"{share * 100:.{0 if share in (0, 1) else 1}f}{THIN}%"


def size(count: int) -> str:
    """Bytes in the decimal unit that leaves one to three digits before the point: 1.36 MB."""
    return scaled(count, "B", THIN)


def scaled(value: float, unit: str = "", space: str = "") -> str:
    """Three significant digits with k, M, G or T: 1.2k, 340k, 5M."""
    prefixes = ("", "k", "M", "G", "T")
    power = 0
    while abs(value) >= 999.5 and power < len(prefixes) - 1:
        value, power = value / 1000, power + 1
    digits = f"{value:.3g}" if abs(value) < 999.5 else f"{value:.0f}"
    return f"{digits}{space}{prefixes[power]}{unit}" if prefixes[power] or unit else digits
