"""Words: their opposites and their plurals.

Each word has one answer, also where English has two: the opposite of `old` is `young` throughout, because the
first pair that names a word decides.
"""

from tokenmill.sample.family import Family, fact

_OPPOSITES = (
    ("hot", "cold"),
    ("big", "small"),
    ("good", "bad"),
    ("up", "down"),
    ("day", "night"),
    ("happy", "sad"),
    ("fast", "slow"),
    ("old", "young"),
    ("tall", "short"),
    ("light", "dark"),
    ("open", "closed"),
    ("black", "white"),
    ("left", "right"),
    ("full", "empty"),
    ("wet", "dry"),
    ("hard", "soft"),
    ("clean", "dirty"),
    ("early", "late"),
    ("rich", "poor"),
    ("strong", "weak"),
    ("loud", "quiet"),
    ("near", "far"),
    ("high", "low"),
    ("long", "short"),
    ("heavy", "light"),
    ("new", "old"),
    ("thick", "thin"),
    ("wide", "narrow"),
    ("deep", "shallow"),
    ("easy", "difficult"),
    ("true", "false"),
    ("first", "last"),
    ("begin", "end"),
    ("buy", "sell"),
    ("win", "lose"),
    ("love", "hate"),
    ("friend", "enemy"),
    ("summer", "winter"),
    ("morning", "evening"),
    ("north", "south"),
    ("east", "west"),
    ("inside", "outside"),
    ("always", "never"),
    ("push", "pull"),
    ("rise", "fall"),
    ("remember", "forget"),
    ("laugh", "cry"),
    ("smooth", "rough"),
    ("sharp", "blunt"),
    ("cheap", "expensive"),
    ("safe", "dangerous"),
    ("alive", "dead"),
    ("ancient", "modern"),
    ("accept", "refuse"),
    ("success", "failure"),
    ("victory", "defeat"),
    ("polite", "rude"),
    ("brave", "cowardly"),
    ("maximum", "minimum"),
    ("vertical", "horizontal"),
    ("permanent", "temporary"),
    ("guilty", "innocent"),
    ("majority", "minority"),
    ("optimist", "pessimist"),
    ("transparent", "opaque"),
)

_PLURALS = (
    ("cat", "cats"),
    ("child", "children"),
    ("mouse", "mice"),
    ("man", "men"),
    ("foot", "feet"),
    ("tooth", "teeth"),
    ("woman", "women"),
    ("book", "books"),
    ("goose", "geese"),
    ("sheep", "sheep"),
    ("leaf", "leaves"),
    ("knife", "knives"),
    ("box", "boxes"),
    ("baby", "babies"),
    ("person", "people"),
    ("city", "cities"),
    ("wolf", "wolves"),
    ("potato", "potatoes"),
    ("bus", "buses"),
    ("ox", "oxen"),
    ("loaf", "loaves"),
    ("hero", "heroes"),
    ("piano", "pianos"),
    ("crisis", "crises"),
    ("criterion", "criteria"),
    ("larva", "larvae"),
)


def _both_ways(pairs: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """Each word with its opposite; the first pair that names a word decides."""
    opposite: dict[str, str] = {}
    for one, other in pairs:
        opposite.setdefault(one, other)
        opposite.setdefault(other, one)
    return opposite


FAMILIES = (
    Family(
        share=85,
        facts=tuple(fact(word=word, opposite=opposite) for word, opposite in _both_ways(_OPPOSITES).items()),
        questions=(
            "What is the opposite of {word}?",
            "Tell me the opposite of {word}.",
            "Which word is the opposite of {word}?",
            "Name the opposite of {word}, please.",
            "Do you know the opposite of {word}?",
            "Give me the opposite of {word}.",
            "Can you tell me the opposite of {word}?",
        ),
        answers=("The opposite of {word} is {opposite}.",),
        followups=("And of {word}?", "And the opposite of {word}?", "What about {word}?"),
    ),
    Family(
        share=40,
        facts=tuple(fact(word=word, plural=plural) for word, plural in _PLURALS),
        questions=(
            "What is the plural of {word}?",
            "Tell me the plural of {word}.",
            "Do you know the plural of {word}?",
            "Give me the plural of {word}, please.",
            "How do you write the plural of {word}?",
        ),
        answers=("The plural of {word} is {plural}.",),
        followups=("And of {word}?", "And the plural of {word}?", "What about {word}?"),
    ),
)
