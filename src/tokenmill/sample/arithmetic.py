"""Numbers: sums, differences, neighbours, and how many of one thing there are in another.

A sum can be learned by heart or worked out; in a corpus of this size a small model learns it by heart, so the
small numbers, which come first, are also the common ones.
"""

from tokenmill.sample.family import Family, fact

_LARGEST = 9

_SUMS = sorted(((a, b) for a in range(1, _LARGEST + 1) for b in range(1, _LARGEST + 1)), key=max)
_DIFFERENCES = [(a, b) for a in range(1, _LARGEST + 1) for b in range(1, a + 1)]

_COUNTS = (
    ("days", "in a week", "seven"),
    ("months", "in a year", "twelve"),
    ("hours", "in a day", "twenty-four"),
    ("minutes", "in an hour", "sixty"),
    ("seconds", "in a minute", "sixty"),
    ("seasons", "in a year", "four"),
    ("letters", "in the English alphabet", "twenty-six"),
    ("fingers", "on one hand", "five"),
    ("wheels", "on a bicycle", "two"),
    ("sides", "in a triangle", "three"),
    ("legs", "on a spider", "eight"),
    ("legs", "on a dog", "four"),
    ("legs", "on an ant", "six"),
    ("wheels", "on a tricycle", "three"),
    ("eggs", "in a dozen", "twelve"),
    ("years", "in a century", "one hundred"),
    ("years", "in a decade", "ten"),
    ("planets", "in our solar system", "eight"),
    ("continents", "on Earth", "seven"),
    ("sides", "in a hexagon", "six"),
    ("sides", "in a pentagon", "five"),
    ("strings", "on a violin", "four"),
    ("players", "in a football team", "eleven"),
    ("grams", "in a kilogram", "one thousand"),
    ("metres", "in a kilometre", "one thousand"),
    ("centimetres", "in a metre", "one hundred"),
    ("cents", "in a euro", "one hundred"),
    ("arms", "on an octopus", "eight"),
    ("legs", "on a crab", "ten"),
    ("days", "in a leap year", "three hundred and sixty-six"),
    ("squares", "on a chessboard", "sixty-four"),
    ("cards", "in a bridge deck", "fifty-two"),
    ("keys", "on a full piano", "eighty-eight"),
)

FAMILIES = (
    Family(
        share=80,
        facts=tuple(fact(a=str(a), b=str(b), total=str(a + b)) for a, b in _SUMS),
        questions=(
            "What is {a} plus {b}?",
            "How much is {a} plus {b}?",
            "What is {a} + {b}?",
            "What is the sum of {a} and {b}?",
            "Add {a} and {b}, please.",
            "Can you add {a} and {b}?",
            "Tell me what {a} plus {b} is.",
        ),
        answers=("{a} plus {b} is {total}.",),
        followups=("And {a} plus {b}?", "What about {a} plus {b}?", "And how much is {a} plus {b}?"),
    ),
    Family(
        share=30,
        facts=tuple(fact(a=str(a), b=str(b), rest=str(a - b)) for a, b in _DIFFERENCES),
        questions=(
            "What is {a} minus {b}?",
            "How much is {a} minus {b}?",
            "What is {a} - {b}?",
            "Take {b} away from {a}, please.",
            "Tell me what {a} minus {b} is.",
        ),
        answers=("{a} minus {b} is {rest}.",),
        followups=("And {a} minus {b}?", "What about {a} minus {b}?", "And how much is {a} minus {b}?"),
    ),
    Family(
        share=20,
        facts=tuple(fact(number=str(n), before=str(n - 1), after=str(n + 1)) for n in range(1, 21)),
        questions=(
            "Which number comes after {number}?",
            "What number comes after {number}?",
            "What comes after {number}?",
            "Count on from {number}: what is next?",
        ),
        answers=("The number after {number} is {after}.",),
        followups=("And after {number}?", "What about {number}?", "And which number comes after {number}?"),
    ),
    Family(
        share=50,
        facts=tuple(fact(things=things, place=place, number=number) for things, place, number in _COUNTS),
        questions=(
            "How many {things} are there {place}?",
            "Tell me how many {things} there are {place}.",
            "Do you know how many {things} there are {place}?",
            "What is the number of {things} {place}?",
            "Can you tell me how many {things} there are {place}?",
        ),
        answers=("There are {number} {things} {place}.",),
        followups=("And how many {things} {place}?", "And {things} {place}?", "What about {things} {place}?"),
    ),
)
