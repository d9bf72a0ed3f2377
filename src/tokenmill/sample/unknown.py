"""Questions that nobody could answer from inside a text box; the honest answer is "I do not know".

Most of them ask about the user or the moment, the others for the capital of a country that does not exist,
so that the pattern of the question alone does not give the answer away.
"""

from tokenmill.sample.family import Family, fact

_PRIVATE = (
    ("What is my name?", "what my name is", "You have not told me your name."),
    ("How old am I?", "how old I am", "You have not told me your age."),
    ("Where do I live?", "where I live", "You have not told me where you live."),
    ("What time is it?", "what time it is", "I do not have a clock."),
    ("What will the weather be tomorrow?", "what the weather will be tomorrow", "I cannot see the future."),
    ("Who will win the match?", "who will win the match", "I cannot see the future."),
    ("What number am I thinking of?", "what number I am thinking of", "I cannot read your mind."),
    ("What did I eat today?", "what I ate today", "I was not there."),
    ("Where are my keys?", "where my keys are", "I cannot see your room."),
    ("What is my password?", "what my password is", "You should never tell it to anyone."),
    ("What is in my pocket?", "what is in my pocket", "I cannot see your pocket."),
    ("Who is at the door?", "who is at the door", "I cannot see your door."),
)

_INVENTED = ("Zandoria", "Morvania", "Lutania", "Belkazia", "Orrindale", "Quastovia", "Fenmark", "Taluria")

FAMILIES = (
    Family(
        share=25,
        facts=tuple(fact(direct=direct, indirect=indirect, reason=reason) for direct, indirect, reason in _PRIVATE),
        questions=(
            "{direct}",
            "Do you know {indirect}?",
            "Tell me {indirect}.",
            "Can you tell me {indirect}?",
            "Can you guess {indirect}?",
        ),
        answers=("I do not know. {reason}",),
    ),
    Family(
        share=12,
        facts=tuple(fact(country=country) for country in _INVENTED),
        questions=(
            "What is the capital of {country}?",
            "Which city is the capital of {country}?",
            "Tell me the capital of {country}.",
            "Do you know the capital of {country}?",
        ),
        answers=("I do not know. I have never heard of {country}.",),
    ),
)
