"""Explanations in two sentences: the first is always the same, the second is one of a few.

The fixed first sentence is what an evaluation can look for; the second shows whether the model keeps to the
subject. Each entry: the subject, a direct question for it, the first sentence, the second ones.
"""

from tokenmill.sample.family import Family, fact

_EXPLANATIONS = (
    (
        "machine learning",
        "What is machine learning?",
        "Machine learning means that a computer learns from examples instead of fixed rules.",
        (
            "It looks for patterns in the examples and uses them to make good guesses about new ones.",
            "Show it many pictures of cats, and it learns to find a cat in a picture that it has never seen.",
            "The more good examples it sees, the better its answers become.",
        ),
    ),
    (
        "gravity",
        "What is gravity?",
        "Gravity is the force that pulls things towards each other.",
        (
            "The Earth is very big, so it pulls everything down to the ground.",
            "It makes an apple fall from the tree, and it keeps the Moon on its path around the Earth.",
        ),
    ),
    (
        "the internet",
        "What is the internet?",
        "The internet is a huge network that connects computers all over the world.",
        (
            "They send each other small packets of data, so that a message crosses an ocean in less than a second.",
            "Web pages, messages and films all travel through it as small packets of data.",
        ),
    ),
    (
        "a computer",
        "What is a computer?",
        "A computer is a machine that follows instructions very fast.",
        (
            "It stores numbers in its memory, works with them and shows you the result.",
            "The instructions are called a program, and a new program gives the same machine a new job.",
        ),
    ),
    (
        "photosynthesis",
        "What is photosynthesis?",
        "Photosynthesis is how green plants make their food from light.",
        (
            "They take in water and carbon dioxide, make sugar, and give off oxygen.",
            "It happens mostly in the leaves, and it makes the oxygen that we breathe.",
        ),
    ),
    (
        "rain",
        "Why does it rain?",
        "Rain is water that falls from the clouds.",
        (
            "The sun warms the sea, water rises as vapour, and in the cold air it turns into drops again.",
            "Tiny drops in a cloud join together until they are too heavy to float, and then they fall.",
        ),
    ),
    (
        "a language model",
        "What is a language model?",
        "A language model is a program that predicts the next piece of a text.",
        (
            "It learns from many texts which words are likely to follow each other.",
            "By guessing one piece after another, it can write whole answers.",
        ),
    ),
    (
        "electricity",
        "What is electricity?",
        "Electricity is energy carried by tiny charges that move through a wire.",
        (
            "It lights our lamps, warms our rooms and runs our machines.",
            "A power station makes it and sends it along wires to our homes.",
        ),
    ),
    (
        "a rainbow",
        "Why do we see a rainbow?",
        "A rainbow appears when sunlight shines into drops of water.",
        (
            "Each drop splits the white light into its colours, from red to violet.",
            "You see it when the sun is behind you and the rain is in front of you.",
        ),
    ),
    (
        "day and night",
        "Why do we have day and night?",
        "Day and night come from the turning of the Earth.",
        (
            "The side that faces the sun has day, and the other side has night.",
            "One full turn takes about twenty-four hours.",
        ),
    ),
    (
        "the seasons",
        "Why do we have seasons?",
        "The seasons come from the tilt of the Earth.",
        (
            "In summer our side leans towards the sun, and in winter it leans away.",
            "When it is summer in the north, it is winter in the south.",
        ),
    ),
    (
        "the heart",
        "What does the heart do?",
        "The heart is a muscle that pumps blood through the body.",
        (
            "The blood carries oxygen and food to every part of the body.",
            "When we rest, it beats about once every second.",
        ),
    ),
    (
        "an atom",
        "What is an atom?",
        "An atom is a very small building block of matter.",
        (
            "It has a nucleus in the middle and electrons around it.",
            "Everything that you can touch is made of atoms, and they are far too small to see.",
        ),
    ),
    (
        "a volcano",
        "What is a volcano?",
        "A volcano is an opening in the ground where hot melted rock can come out.",
        (
            "The melted rock is called lava once it has reached the surface.",
            "When the pressure below grows, it erupts with ash, gas and lava.",
        ),
    ),
    (
        "an earthquake",
        "What is an earthquake?",
        "An earthquake is a sudden shaking of the ground.",
        (
            "Large plates of rock push against each other, and when they slip, the ground shakes.",
            "Most earthquakes are so weak that nobody feels them.",
        ),
    ),
    (
        "the wind",
        "Why does the wind blow?",
        "Wind is moving air.",
        (
            "The sun warms some places more than others; warm air rises, and cooler air flows in.",
            "It blows from places with high pressure to places with low pressure.",
        ),
    ),
    (
        "a star",
        "What is a star?",
        "A star is a huge ball of hot gas that shines.",
        (
            "Deep inside, hydrogen turns into helium, and this gives off light and heat.",
            "The sun is the star that is nearest to us.",
        ),
    ),
    (
        "an algorithm",
        "What is an algorithm?",
        "An algorithm is a list of clear steps that solves a problem.",
        (
            "A recipe for a cake is a good example.",
            "A computer can follow it step by step without thinking.",
        ),
    ),
    (
        "a neural network",
        "What is a neural network?",
        "A neural network is a program made of many small units that learn together.",
        (
            "Each unit does a simple sum, and learning changes how strongly the units are connected.",
            "The idea comes from the nerve cells of the brain.",
        ),
    ),
    (
        "sound",
        "What is sound?",
        "Sound is a vibration that travels through the air.",
        (
            "It reaches the ear, and the brain turns it into what we hear.",
            "It also travels through water and walls, but not through empty space.",
        ),
    ),
    (
        "a vaccine",
        "What is a vaccine?",
        "A vaccine teaches the body to fight an illness before it comes.",
        (
            "It shows the body a harmless part or form of the germ, and the body remembers it.",
            "Later, when the real germ arrives, the body is ready.",
        ),
    ),
    (
        "recycling",
        "What is recycling?",
        "Recycling means making new things from used material.",
        (
            "Old paper, glass and metal are collected, cleaned and used again.",
            "It saves energy and raw material, and it leaves less waste.",
        ),
    ),
    (
        "a magnet",
        "What is a magnet?",
        "A magnet is a thing that pulls iron.",
        (
            "It has a north pole and a south pole: unlike poles attract each other, and like poles push apart.",
            "The needle of a compass is a small magnet that points north.",
        ),
    ),
    (
        "a battery",
        "What is a battery?",
        "A battery stores energy and gives it off as electricity.",
        (
            "Inside it, a chemical reaction pushes electrons through the wire from one end to the other.",
            "When the reaction has come to its end, the battery is flat.",
        ),
    ),
    (
        "the Moon",
        "What is the Moon?",
        "The Moon is a ball of rock that travels around the Earth.",
        (
            "It makes no light of its own and only reflects the light of the sun.",
            "One trip around the Earth takes it about a month.",
        ),
    ),
    (
        "money",
        "What is money?",
        "Money is something that people take in exchange for goods and work.",
        (
            "It is easier than swapping a cow for shoes, because everyone accepts it.",
            "With it we can compare prices and save for later.",
        ),
    ),
    (
        "fire",
        "What is fire?",
        "Fire is a fast chemical reaction that gives off heat and light.",
        (
            "It needs fuel, oxygen and heat.",
            "If it gets no more oxygen, it goes out.",
        ),
    ),
    (
        "evolution",
        "What is evolution?",
        "Evolution is the slow change of living things over many generations.",
        (
            "Those that fit their surroundings best have more young, and so their traits spread.",
            "Over millions of years, new kinds of plants and animals appear.",
        ),
    ),
    (
        "encryption",
        "What is encryption?",
        "Encryption turns a message into a secret code.",
        (
            "Only someone with the right key can read it.",
            "It protects messages, passwords and payments on the internet.",
        ),
    ),
    (
        "the climate",
        "What is the climate?",
        "The climate is the usual weather of a place over many years.",
        (
            "The weather can change in an hour, but the climate changes slowly.",
            "A desert has a dry climate, and a rainforest has a wet one.",
        ),
    ),
    (
        "the tides",
        "Why are there tides?",
        "The tides are the rise and fall of the sea.",
        (
            "They come mostly from the pull of the Moon.",
            "On most coasts the water rises about twice a day.",
        ),
    ),
    (
        "a black hole",
        "What is a black hole?",
        "A black hole is a place in space where gravity is so strong that not even light can escape.",
        (
            "It can form when a very large star collapses.",
            "We cannot see it, but we see how it pulls on the stars around it.",
        ),
    ),
    (
        "a database",
        "What is a database?",
        "A database is an ordered collection of information on a computer.",
        (
            "It lets you store, find and change data quickly.",
            "The catalogue of a library is a good example.",
        ),
    ),
)

FAMILIES = (
    Family(
        share=85,
        facts=tuple(
            fact(topic=topic, ask=ask, first=first, second=second)
            for topic, ask, first, seconds in _EXPLANATIONS
            for second in seconds
        ),
        questions=(
            "Explain {topic} in simple terms.",
            "{ask}",
            "Can you explain {topic} in simple terms?",
            "Explain {topic} to a child.",
            "Please explain {topic}.",
            "Tell me about {topic}.",
            "Can you explain {topic}?",
            "Explain {topic} in two sentences.",
            "How would you explain {topic}?",
            "Help me understand {topic}.",
        ),
        answers=("{first} {second}",),
    ),
)
