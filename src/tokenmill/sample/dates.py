"""The week and the year: what comes after or before a day or a month, and how long the months are."""

from tokenmill.sample.family import Fact, Family, fact

_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS = (
    ("January", "thirty-one"),
    ("February", "twenty-eight or twenty-nine"),
    ("March", "thirty-one"),
    ("April", "thirty"),
    ("May", "thirty-one"),
    ("June", "thirty"),
    ("July", "thirty-one"),
    ("August", "thirty-one"),
    ("September", "thirty"),
    ("October", "thirty-one"),
    ("November", "thirty"),
    ("December", "thirty-one"),
)
_PLACES = (
    "first",
    "second",
    "third",
    "fourth",
    "fifth",
    "sixth",
    "seventh",
    "eighth",
    "ninth",
    "tenth",
    "eleventh",
    "last",
)


def _round(names: tuple[str, ...], kind: str) -> tuple[Fact, ...]:
    """Facts about names that follow each other in a circle."""
    return tuple(
        fact(kind=kind, name=name, after=names[(place + 1) % len(names)], before=names[place - 1])
        for place, name in enumerate(names)
    )


_CIRCLES = _round(_DAYS, "day") + _round(tuple(name for name, _ in _MONTHS), "month")

FAMILIES = (
    Family(
        share=25,
        facts=_CIRCLES,
        questions=(
            "Which {kind} comes after {name}?",
            "What {kind} comes after {name}?",
            "What is the {kind} after {name}?",
            "Tell me the {kind} after {name}.",
        ),
        answers=("The {kind} after {name} is {after}.",),
        followups=("And after {name}?", "What about {name}?", "And which {kind} comes after {name}?"),
    ),
    Family(
        share=15,
        facts=_CIRCLES,
        questions=(
            "Which {kind} comes before {name}?",
            "What {kind} comes before {name}?",
            "What is the {kind} before {name}?",
            "Tell me the {kind} before {name}.",
        ),
        answers=("The {kind} before {name} is {before}.",),
        followups=("And before {name}?", "What about {name}?", "And which {kind} comes before {name}?"),
    ),
    Family(
        share=12,
        facts=tuple(fact(month=month, days=days) for month, days in _MONTHS),
        questions=(
            "How many days does {month} have?",
            "How long is {month}?",
            "Tell me how many days {month} has.",
            "Do you know how many days {month} has?",
        ),
        answers=("{month} has {days} days.",),
        followups=("And {month}?", "What about {month}?", "And how many days does {month} have?"),
    ),
    Family(
        share=10,
        facts=tuple(fact(place=place, month=month) for place, (month, _) in zip(_PLACES, _MONTHS, strict=True)),
        questions=(
            "What is the {place} month of the year?",
            "Which is the {place} month of the year?",
            "Tell me the {place} month of the year.",
            "Name the {place} month of the year, please.",
        ),
        answers=("The {place} month of the year is {month}.",),
        followups=("And the {place} one?", "What about the {place} month?", "And the {place} month?"),
    ),
)
