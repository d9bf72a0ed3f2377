"""How large a model suits a text."""

import pytest

from tokenmill.planning.fit import balance, suitable_parameters


@pytest.mark.parametrize(
    ("tokens", "epochs", "expected"),
    [
        (400_000, 4, "too little text"),
        (1_000_000, 100, "too little text"),
        (8_000_000, 1, "short training"),
        (20_000_000, 1, "balanced"),
        (200_000_000, 1, "long training"),
    ],
)
def test_tokens_are_weighed_against_a_million_parameters(tokens: int, epochs: int, expected: str):
    assert balance(parameters=1_000_000, tokens=tokens, epochs=epochs) == expected


def test_suitable_model_gets_twenty_tokens_per_parameter():
    assert suitable_parameters(tokens=400_000, epochs=4) == suitable_parameters(tokens=400_000, epochs=40) == 80_000
