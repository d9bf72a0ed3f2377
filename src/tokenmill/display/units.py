"""Numbers in the unit that says something."""


def size(count: float) -> str:
    """Bytes: `1.08 GB`."""
    for unit, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB")):
        if count >= unit:
            return f"{count / unit:.3g} {name}"
    return f"{count / 1e3:.3g} kB"
