"""People: what they do at work, and who wrote, painted, composed or found what.

The second list holds the rare facts of the corpus: long names that come up a handful of times and are learned last.
"""

from tokenmill.sample.family import Family, fact

_WORK = (
    ("a baker", "bakes bread"),
    ("a pilot", "flies planes"),
    ("a teacher", "teaches pupils"),
    ("a doctor", "treats sick people"),
    ("a farmer", "grows food"),
    ("a cook", "prepares meals"),
    ("a painter", "paints pictures"),
    ("an author", "writes books"),
    ("a singer", "sings songs"),
    ("a gardener", "looks after plants"),
    ("a fisherman", "catches fish"),
    ("a carpenter", "makes things from wood"),
    ("a tailor", "makes clothes"),
    ("a dentist", "looks after teeth"),
    ("a firefighter", "puts out fires"),
    ("a hairdresser", "cuts hair"),
    ("a plumber", "repairs water pipes"),
    ("a librarian", "looks after books"),
    ("a nurse", "cares for patients"),
    ("a vet", "treats sick animals"),
    ("a judge", "decides cases in court"),
    ("an architect", "designs buildings"),
    ("an astronomer", "studies the stars"),
    ("a florist", "sells flowers"),
    ("a composer", "writes music"),
    ("a beekeeper", "keeps bees"),
    ("a cobbler", "mends shoes"),
    ("a blacksmith", "works with iron"),
    ("a historian", "studies the past"),
    ("a botanist", "studies plants"),
    ("a geologist", "studies rocks"),
)

_DEEDS = (
    ("William Shakespeare", "wrote Hamlet"),
    ("Leonardo da Vinci", "painted the Mona Lisa"),
    ("Isaac Newton", "described the law of gravity"),
    ("Albert Einstein", "developed the theory of relativity"),
    ("Neil Armstrong", "was the first person on the Moon"),
    ("Jane Austen", "wrote Pride and Prejudice"),
    ("Charles Dickens", "wrote Oliver Twist"),
    ("Vincent van Gogh", "painted The Starry Night"),
    ("Charles Darwin", "wrote On the Origin of Species"),
    ("Mary Shelley", "wrote Frankenstein"),
    ("Lewis Carroll", "wrote Alice in Wonderland"),
    ("Tim Berners-Lee", "invented the World Wide Web"),
    ("Leo Tolstoy", "wrote War and Peace"),
    ("Miguel de Cervantes", "wrote Don Quixote"),
    ("Alexander Fleming", "discovered penicillin"),
    ("Antonio Vivaldi", "composed The Four Seasons"),
    ("Wolfgang Amadeus Mozart", "composed The Magic Flute"),
    ("Ludwig van Beethoven", "composed the Moonlight Sonata"),
    ("Robert Louis Stevenson", "wrote Treasure Island"),
    ("Bram Stoker", "wrote Dracula"),
    ("Herman Melville", "wrote Moby-Dick"),
    ("Emily Brontë", "wrote Wuthering Heights"),
)

FAMILIES = (
    Family(
        share=35,
        facts=tuple(fact(person=person, work=work) for person, work in _WORK),
        questions=(
            "What does {person} do?",
            "Who {work}?",
            "What do you call a person who {work}?",
            "What is the work of {person}?",
            "Tell me what {person} does.",
        ),
        answers=("{Person} {work}.",),
        followups=("And {person}?", "What about {person}?", "And what does {person} do?", "And who {work}?"),
    ),
    Family(
        share=20,
        facts=tuple(fact(person=person, deed=deed) for person, deed in _DEEDS),
        questions=(
            "Who {deed}?",
            "Do you know who {deed}?",
            "Tell me who {deed}.",
            "Can you tell me who {deed}?",
            "Which person {deed}?",
        ),
        answers=("{person} {deed}.",),
        followups=("And who {deed}?", "And can you tell me who {deed}?", "Do you also know who {deed}?"),
    ),
)
