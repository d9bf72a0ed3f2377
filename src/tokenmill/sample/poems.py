"""Poems of four short lines: the first couplet belongs to the subject, the second is one of a few.

Everything in here was written for this corpus. The fixed first couplet is what an evaluation can look for.
Each entry: the subject, the opening couplet, the closing ones.
"""

from tokenmill.sample.family import Family, fact

_POEMS = (
    (
        "coffee",
        "A cup of coffee, warm and deep,\nIt gently shakes me out of sleep.",
        (
            "The steam curls up, the day begins,\nAnd with each sip the morning wins.",
            "One sip, and all the clouds are gone,\nA second sip, and I go on.",
            "The kitchen smells of roasted beans,\nAnd I know well what waking means.",
        ),
    ),
    (
        "the rain",
        "The rain is tapping on the pane,\nAnd sings to me its soft refrain.",
        (
            "The garden drinks, the puddles shine,\nAnd all the world smells fresh and fine.",
            "I sit inside, I hear it fall,\nAnd do not mind the rain at all.",
        ),
    ),
    (
        "the sea",
        "The sea rolls in, the sea rolls out,\nThe white gulls wheel and cry and shout.",
        (
            "It leaves a shell upon the sand,\nA little gift for someone's hand.",
            "It never tires, it never sleeps,\nAnd many are the things it keeps.",
        ),
    ),
    (
        "a cat",
        "My cat is soft, my cat is sly,\nShe greets me with a sleepy eye.",
        (
            "She finds the sun upon the floor,\nAnd purrs and dreams and asks no more.",
            "At night she hunts a ball of thread,\nAnd then she steals my nice warm bed.",
        ),
    ),
    (
        "autumn",
        "The autumn leaves are red and gold,\nThe mornings turn a little cold.",
        (
            "The wind comes by and shakes the tree,\nAnd throws a golden leaf to me.",
            "The apples wait in baskets now,\nAnd birds fly south from every bough.",
        ),
    ),
    (
        "spring",
        "The spring has come on quiet feet,\nThe air is mild, the air is sweet.",
        (
            "A crocus opens to the light,\nAnd every day is long and bright.",
            "The birds are building in the tree,\nAnd sing from dawn for you and me.",
        ),
    ),
    (
        "the moon",
        "The moon climbs up above the hill,\nThe fields are pale, the town is still.",
        (
            "She lends a little silver light,\nTo all who walk alone at night.",
            "She grows, she thins, she grows again,\nA lamp for sailors and for men.",
        ),
    ),
    (
        "a dog",
        "My dog runs out to meet the day,\nHe wags his tail and wants to play.",
        (
            "He brings the stick, he brings the ball,\nAnd comes as soon as I can call.",
            "And when the evening light is low,\nHe sleeps beside the embers' glow.",
        ),
    ),
    (
        "winter",
        "The winter paints the window white,\nAnd stars are sharp and clear at night.",
        (
            "The fire hums, the kettle sings,\nHow good the warmth that winter brings.",
            "We build a man of ice and snow,\nAnd watch the early lanterns glow.",
        ),
    ),
    (
        "summer",
        "The summer sun is high and strong,\nThe days are warm, the days are long.",
        (
            "We swim and laugh until the night,\nAnd walk back home by evening light.",
            "The bees are humming in the clover,\nWe hope that it is never over.",
        ),
    ),
    (
        "a friend",
        "A friend is one who comes to stay,\nWhen all the rest have gone away.",
        (
            "We share our bread, we share our song,\nAnd with a friend no road is long.",
            "You need not speak, you need not try,\nA friend will know the reason why.",
        ),
    ),
    (
        "the stars",
        "The stars come out when day is done,\nI try to count them, one by one.",
        (
            "Before I reach a hundred, though,\nI fall asleep beneath their glow.",
            "Each tiny light is far away,\nA sun that shines on someone's day.",
        ),
    ),
    (
        "a tree",
        "The tree beside our garden wall\nWas once a seed, and very small.",
        (
            "It gives us shade, it gives us air,\nAnd half the birds of town live there.",
            "Its roots go down, its arms go high,\nA quiet friend of earth and sky.",
        ),
    ),
    (
        "a book",
        "A book is like an open door\nTo lands I never saw before.",
        (
            "I turn the page and off I go\nTo deserts, cities, seas and snow.",
            "And when I close it late at night,\nIts people stay and hold a light.",
        ),
    ),
    (
        "the morning",
        "The morning opens soft and slow,\nThe rooftops catch a rosy glow.",
        (
            "A door, a step, a voice, a bell,\nThe day begins, and all is well.",
            "I greet the sun, I stretch my arms,\nAnd leave the night with all its charms.",
        ),
    ),
    (
        "snow",
        "The snow came down the whole night through,\nAnd made the old grey village new.",
        (
            "No step, no wheel, no sound, no shout,\nUntil the children all ran out.",
            "It covers roof and road and stone,\nAnd every tree stands white, alone.",
        ),
    ),
    (
        "bread",
        "The bread is rising, round and slow,\nA simple thing of heat and dough.",
        (
            "Its smell goes out into the street,\nAnd soon we all sit down to eat.",
            "The crust is brown, the crumb is white,\nAnd butter makes it taste just right.",
        ),
    ),
    (
        "a train",
        "The train runs on through field and town,\nThe signal lights go up and down.",
        (
            "I lean my head against the glass,\nAnd watch the little stations pass.",
            "It hums a song of wheel and rail,\nAnd every stop could tell a tale.",
        ),
    ),
    (
        "a garden",
        "The garden wakes beneath the sun,\nThe beans are climbing, one by one.",
        (
            "A snail slides by, a robin sings,\nThe grass is full of little things.",
            "I pull a weed, I plant a seed,\nAnd find that this is all I need.",
        ),
    ),
    (
        "a river",
        "The river starts as something small,\nA drop, a thread, a waterfall.",
        (
            "It winds through meadows to the sea,\nAnd never asks where it should be.",
            "It carries leaf and boat and sky,\nAnd sings to all it passes by.",
        ),
    ),
    (
        "the wind",
        "The wind has neither hand nor face,\nAnd yet it moves from place to place.",
        (
            "It lifts the kite, it turns the mill,\nAnd only seldom it stands still.",
            "It combs the grass, it bends the tree,\nAnd drives the clouds across the sea.",
        ),
    ),
    (
        "tea",
        "A pot of tea, two cups, a chair,\nAnd time enough for us to share.",
        (
            "The kettle sings its little tune\nThe whole long rainy afternoon.",
            "A drop of milk, a spoon, a smile,\nCome in and sit with me a while.",
        ),
    ),
    (
        "a bird",
        "A little bird upon the wall\nIs singing loud, though it is small.",
        (
            "It sings of worms, it sings of sky,\nAnd then decides that it will fly.",
            "I do not know what it may say,\nBut it has brightened up my day.",
        ),
    ),
)

FAMILIES = (
    Family(
        share=50,
        facts=tuple(
            fact(topic=topic, opening=opening, ending=ending)
            for topic, opening, endings in _POEMS
            for ending in endings
        ),
        questions=(
            "Write a short poem about {topic}.",
            "Write a poem about {topic}.",
            "Can you write a short poem about {topic}?",
            "Please write a short poem about {topic}.",
            "I would like a short poem about {topic}.",
            "Write four lines about {topic}.",
            "Give me a little poem about {topic}.",
            "Make up a poem about {topic}, please.",
        ),
        answers=("{opening}\n{ending}",),
    ),
)
