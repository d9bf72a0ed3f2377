"""Small talk: how a conversation opens and closes, and what is said besides facts.

`OPENING` and `CLOSING` are whole turns around the turns with questions. `GREETINGS`, `THANKS`, `OCCASIONS` and
`EXCUSES` are what people put around a question within one turn; they do not change its answer.
"""

from tokenmill.sample.family import Family, fact

GREETINGS = ("Hello!", "Hi!", "Good morning!", "Hey!", "Please help me.", "Good evening!", "Hi there!", "Excuse me.")
"""Said before any request, from common to rare."""

THANKS = ("Thanks!", "Thank you.", "Thank you very much.", "Thanks in advance!")
"""Said after any request, from common to rare."""

OCCASIONS = (
    "I have a question.",
    "A quick question.",
    "I am curious.",
    "I need this for school.",
    "Let us play a quiz.",
    "Here is an easy one.",
    "My son wants to know this.",
    "My daughter asked me this.",
    "Here is my next question.",
    "We are making a quiz.",
    "I was thinking about this today.",
)
"""Said before a question for a fact, from common to rare."""

EXCUSES = (
    "I forgot.",
    "I am not sure.",
    "It is for school.",
    "I would like to learn it.",
    "My friend asked me.",
    "I hope that you can help.",
)
"""Said after a question for a fact, from common to rare."""


def _talk(share: int, questions: tuple[str, ...], answers: tuple[str, ...]) -> Family:
    """Small talk is a family without facts."""
    return Family(share=share, facts=(fact(),), questions=questions, answers=answers)


OPENING = _talk(
    12,
    (
        "Hello!",
        "Hi!",
        "Hi there!",
        "Good morning!",
        "Hey!",
        "Good evening!",
        "Hello, can you help me?",
        "Hi, I have a question.",
        "Good afternoon!",
        "Hello there.",
        "Hello, are you there?",
        "Hi, nice to meet you.",
        "Hello, I need some help.",
        "Hey there!",
        "Hi, may I ask you something?",
    ),
    ("Hello! How can I help you?", "Hello! What would you like to know?", "Hi! What can I do for you?"),
)

CLOSING = _talk(
    12,
    (
        "Thank you!",
        "Thanks!",
        "Thank you very much.",
        "Thanks a lot!",
        "Great, thank you.",
        "That helps, thanks.",
        "Perfect, thanks!",
        "Wonderful, thank you!",
        "Thanks, that is all.",
        "Good to know, thank you.",
        "That was quick, thank you.",
        "I see, thank you.",
        "Ah, of course. Thanks!",
    ),
    (
        "You are welcome!",
        "You are welcome! Is there anything else?",
        "My pleasure!",
        "I am glad that I could help.",
    ),
)

FAMILIES = (
    _talk(
        12,
        ("How are you?", "How are you today?", "How do you do?", "How is it going?", "Are you well?"),
        ("I am fine, thank you. How can I help you?", "I am well, thank you. What would you like to know?"),
    ),
    _talk(
        12,
        ("Who are you?", "What are you?", "Are you a person?", "Are you a robot?", "Tell me about yourself."),
        ("I am a small language model. I answer simple questions.",),
    ),
    _talk(
        12,
        (
            "What can you do?",
            "What do you know?",
            "How can you help me?",
            "What can I ask you?",
            "Tell me what you can do.",
        ),
        ("I can answer simple questions, explain things and write short poems.",),
    ),
    _talk(
        10,
        ("Goodbye!", "Bye!", "See you later.", "See you soon!", "That is all for today.", "I have to go now."),
        ("Goodbye! Have a nice day.", "Goodbye, and come back soon."),
    ),
    _talk(6, ("Good night!", "I am going to bed.", "I am going to sleep now."), ("Good night! Sleep well.",)),
    _talk(
        6,
        ("I am sad.", "I am a bit sad today.", "I feel sad.", "I had a bad day."),
        ("I am sorry to hear that. I hope that tomorrow will be better.",),
    ),
    _talk(
        6,
        ("I am happy.", "I am so happy today!", "I had a good day.", "Today was a wonderful day."),
        ("I am glad to hear that!",),
    ),
    _talk(
        6,
        ("I am bored.", "I am so bored today.", "What shall we do?", "I do not know what to do."),
        ("Shall I write a short poem for you, or would you like a quiz?",),
    ),
    _talk(
        6,
        ("You are great!", "You are very clever.", "You are so kind.", "Well done!", "I like you."),
        ("Thank you, that is very kind of you.",),
    ),
    _talk(
        4,
        ("It is my birthday.", "Today is my birthday!", "I have my birthday today."),
        ("Happy birthday! I wish you a wonderful day.",),
    ),
)
