"""How far the formats of `tokenmill export` are from TokenMill's own logits, ids and greedy text.

Where a greedy text is another one, the table has the lead of TokenMill's token over the other, in
logits: a lead below the difference of the logits is a tie that rounding decides.

`python -m bench.formats` prints a table: each architecture at two sizes, each with random weights,
on conversations of the built-in corpus. `pip install -c .venv/constraints.txt -e
'.[dev,gguf,onnx]' llama-cpp-python` installs what the formats need; one whose package is missing
has a line that says so.
"""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor

from bench.program import command_line
from tokenmill.core.errors import UserError
from tokenmill.core.files import write_text
from tokenmill.evaluation.generate import generate
from tokenmill.evaluation.sampling import Sampling
from tokenmill.formats.chat import readable, render_chat
from tokenmill.formats.tokenizer import TextTokenizer, read_tokenizer
from tokenmill.model.config import Architecture, ModelConfig
from tokenmill.model.gpt import GPT, build
from tokenmill.model.huggingface import load_model, save_weights
from tokenmill.runs.export import Format, Record, export
from tokenmill.runs.find import FoundModel
from tokenmill.sample.generator import conversations
from tokenmill.tokens.bpe import train_reference

SIZES = {"4 layers, 128 wide": (4, 4, 128, 256, 1024), "8 layers, 512 wide": (8, 8, 512, 512, 4096)}
"""Layers, heads, width, context, vocabulary."""
# Prompts, and greedy tokens for each
TEXTS = 4
NEW = 16
FORMATS: dict[Format, str] = {"hf": "transformers", "onnx": "onnxruntime", "gguf": "llama.cpp"}

ROLES = ("user", "assistant")

Encode = Callable[[str], Sequence[int]]
Logits = Callable[[Sequence[int]], Tensor]
"""Ids -> (T, V)."""


def main() -> None:
    """Print the table, a row for each architecture, size and format."""
    command_line(__doc__, figures=False).parse_args()
    texts = [
        readable(render_chat([turn for asked in chat for turn in zip(ROLES, asked, strict=True)]))
        for chat in conversations(seed=0, count=4000)
    ]
    print(
        "| model | format, read by | largest difference of logits | ids that differ | greedy "
        "texts |"
    )
    print("| --- | --- | --- | --- | --- |")
    for architecture in get_args(Architecture):
        for size in SIZES:
            with tempfile.TemporaryDirectory() as name:
                for cells in _rows(
                    _checkpoint(Path(name), architecture, size, texts), texts[:TEXTS]
                ):
                    print(f"| {architecture}, {size} | {cells} |", flush=True)


def _checkpoint(
    folder: Path, architecture: Architecture, size: str, texts: list[str]
) -> FoundModel:
    """A model all of whose weights are random: fresh blocks of `modern` do nothing."""
    n_layer, n_head, n_embd, context_length, vocab_size = SIZES[size]
    write_text(folder / "tokenizer.json", train_reference([texts], vocab_size).to_str())
    tokenizer = read_tokenizer(folder / "tokenizer.json")
    generator = torch.Generator().manual_seed(0)
    config = ModelConfig(
        architecture=architecture,
        n_layer=n_layer,
        n_head=n_head,
        n_embd=n_embd,
        context_length=context_length,
        dropout=0.0,
        vocab_size=tokenizer.vocab_size,
    )
    model = build(config, seed=0)
    for parameter in model.parameters():
        parameter.data.add_(0.05 * torch.randn(parameter.shape, generator=generator))
    save_weights(model, folder / "model")
    return FoundModel("random", folder / "model", folder / "tokenizer.json")


def _rows(checkpoint: FoundModel, texts: list[str]) -> Iterator[str]:
    """The cells behind the model's name, for each format."""
    ours = load_model(checkpoint.folder)
    tokenizer = read_tokenizer(checkpoint.tokenizer)
    for kind, reader in FORMATS.items():
        target = checkpoint.folder.with_name(kind)
        try:
            export(checkpoint, Record(None, None, None), target, kind)
            encode, logits = READERS[kind](target)
        except (UserError, ImportError) as error:
            yield f"{kind}, {reader} | {error} | | "
            continue
        yield f"{kind}, {reader} | {_compare(ours, tokenizer, encode, logits, texts)}"


def _compare(
    ours: GPT, tokenizer: TextTokenizer, encode: Encode, logits: Logits, texts: list[str]
) -> str:
    largest = 0.0
    ids_differ = 0
    ties = list[str]()
    for text in texts:
        ids = tokenizer.encode(text)[: ours.config.context_length - NEW]
        ids_differ += encode(text)[: len(ids)] != ids
        with torch.no_grad():
            largest = max(largest, float((logits(ids) - ours(torch.tensor([ids]))[0]).abs().max()))
        written = list(ids)
        for _ in range(NEW):
            written.append(int(logits(written)[-1].argmax()))
        expected = [*ids, *generate(ours, ids, ends=(), sampling=Sampling(max_new_tokens=NEW))]
        if written != expected:
            ties.append(f"{_lead(ours, expected, written):.0e}")
    equal = f"{len(texts) - len(ties)} of {len(texts)} equal" + (
        f"; the others at leads of {', '.join(ties)}" * bool(ties)
    )
    return f"{largest:.1e} | {ids_differ or 'none'} | {equal}"


def _lead(model: GPT, expected: list[int], written: list[int]) -> float:
    """By how much the model prefers its own next token to the other one, where two texts part."""
    place = next(i for i, (a, b) in enumerate(zip(expected, written, strict=True)) if a != b)
    with torch.no_grad():
        logits_V = model(torch.tensor([expected[:place]]))[0, -1]
    return float(logits_V[expected[place]] - logits_V[written[place]])


def _transformers(folder: Path) -> tuple[Encode, Logits]:
    # A contender may be missing
    from transformers.models.auto.modeling_auto import AutoModelForCausalLM  # noqa: PLC0415
    from transformers.models.auto.tokenization_auto import AutoTokenizer  # noqa: PLC0415

    model: Any = AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True)
    tokenizer: Any = AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
    return lambda text: tokenizer(text)[
        "input_ids"
    ], lambda ids: model(torch.tensor([ids])).logits[0].detach()


def _onnxruntime(folder: Path) -> tuple[Encode, Logits]:
    import onnxruntime  # noqa: PLC0415  # pyright: ignore[reportMissingImports]

    session: Any = onnxruntime.InferenceSession(folder / "model.onnx")
    encode = read_tokenizer(folder / "tokenizer.json").encode
    return encode, lambda ids: torch.tensor(
        session.run(None, {"input_ids": torch.tensor([ids]).numpy()})[0][0]
    )


def _llama_cpp(folder: Path) -> tuple[Encode, Logits]:
    import llama_cpp  # noqa: PLC0415  # pyright: ignore[reportMissingImports]

    model = llama_cpp.Llama(str(folder / "model.gguf"), n_ctx=0, logits_all=True, verbose=False)

    def logits(ids: Sequence[int]) -> Tensor:
        model.reset()
        model.eval(ids)
        return torch.tensor(model.scores[: len(ids)])

    return lambda text: model.tokenize(text.encode(), add_bos=False, special=False), logits


READERS: dict[Format, Callable[[Path], tuple[Encode, Logits]]] = {
    "hf": _transformers,
    "onnx": _onnxruntime,
    "gguf": _llama_cpp,
}

if __name__ == "__main__":
    main()
