"""Warnings about a trained model, in sentences for the terminal and the pages: what its numbers say
that one may overlook."""

from tokenmill.words.units import fixed

UNLIKE = 1.25
"""The validation loss after the first epoch, as a multiple of the training loss, beyond which the
two texts are unlike. After some 200 steps on 600 kB of speeches, plays or code it was 1.16 to 1.20
on text of the same kind, and 1.36 to 2.2 on text of another."""

MISFIT = 0.75
"""The bytes of chats in a token, as a fraction of those of the text that the tokenizer was learned
from, below which it does not fit the chats. With 1,024 or 8,192 entries, that of the built-in
sample reached 0.46 to 0.75 on chats, speeches, plays and code; those of chats and plays reached
0.71 to 1.1 on each other's text and on speeches."""


def worse_than_frequencies(bits_per_byte: float, frequencies: float) -> str:
    """A warning about a model that knows less than the frequencies of tokens say, by the bits per
    byte of both; empty if it knows more."""
    if bits_per_byte <= frequencies:
        return ""
    return (
        f"the model is worse than the frequencies of tokens alone ({fixed(bits_per_byte)} against "
        f"{fixed(frequencies)} bits per byte): of the validation text it has learned nothing; "
        "train longer (train.epochs) or on more text, and see whether the two texts are alike"
    )


def unlike_training(train_loss: float, val_loss: float) -> str:
    """A warning about validation text that is unlike the training text, by the losses after the
    first epoch; empty if they are alike."""
    # the first epoch reads nothing twice, so it cannot have learned much by heart
    if val_loss <= UNLIKE * train_loss:
        return ""
    return (
        "the validation text is unlike the training text: after epoch 1 its loss is "
        f"{val_loss:.2f}, that of the training text {train_loss:.2f}; where whole languages or "
        "sources are held out, tokenize.split=ends holds out the end of every document instead"
    )


def unfit_tokenizer(chats: float, *, text: float) -> str:
    """A warning about a tokenizer that does not fit the chats of a fine-tuning, by the bytes of
    their answers and of its own text in a token; empty if it does."""
    if chats >= MISFIT * text:
        return ""
    return (
        f"the tokenizer does not fit the chats: a token holds {chats:.2f} bytes of their answers, "
        f"and {text:.2f} of the text that it was learned from; a base whose text has such chats "
        "learns them better"
    )


def left_out_of_chats(left_out: int, *, texts: int, context_length: int) -> str:
    """A warning about texts that a fine-tuning leaves out; empty if it learns from all."""
    if not left_out:
        return ""
    return (
        f"fine-tuning leaves out {left_out:,} of {texts:,} texts: they have no answer within "
        f"model.context_length ({context_length}); a base with a longer context may keep more"
    )
