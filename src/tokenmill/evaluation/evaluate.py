"""Every epoch of a training, measured the same way: losses on fixed windows, answers to fixed prompts."""

from pathlib import Path

from tokenmill.display.progress import Progress
from tokenmill.errors import UserError
from tokenmill.evaluation.answers import answer, prepare
from tokenmill.evaluation.params import EvaluateParams
from tokenmill.evaluation.results import EpochResult, Evaluation
from tokenmill.model.decoder import decoder_of
from tokenmill.model.weights import load_model
from tokenmill.tokenization.metadata import SPLITS, Split, TokenMetadata
from tokenmill.tokenization.token_file import open_tokens, read_metadata
from tokenmill.tokenization.tokenizer import TextTokenizer, read_tokenizer
from tokenmill.training.batches import Windows, evenly_spread
from tokenmill.training.device import Compute, choose_compute, place_tokens
from tokenmill.training.history import bits_per_byte, perplexity
from tokenmill.training.manifest import Manifest, read_manifest
from tokenmill.training.params import RuntimeParams
from tokenmill.training.step import mean_loss


def evaluate(
    *, models: Path, tokens: Path, tokenizer_file: Path, params: EvaluateParams, runtime: RuntimeParams
) -> Evaluation:
    """Measure every epoch in the folder `models`.

    Raises:
        UserError: model, tokenizer and tokens do not belong together, or one of them is missing.
    """
    manifest, metadata = read_manifest(models), read_metadata(tokens)
    tokenizer = read_tokenizer(tokenizer_file)
    _refuse_mismatch(manifest, metadata, tokenizer, tokenizer_file)
    compute = choose_compute(runtime, manifest.train.precision)
    windows = {name: _windows(tokens, name, manifest, compute) for name in SPLITS}
    prompts = prepare(params.prompts, tokenizer, context_length=manifest.model.context_length)
    results = []
    with Progress("evaluate", manifest.epochs, "epochs") as progress:
        for epoch in range(1, manifest.epochs + 1):
            model = load_model(models / f"epoch-{epoch}", str(compute.device))
            loss = {
                name: mean_loss(
                    model,
                    these,
                    evenly_spread(these.count, min(manifest.train.validation_windows, windows["val"].count)),
                    micro_batch=manifest.train.batch_size,
                    compute=compute,
                )
                for name, these in windows.items()
            }
            write = decoder_of(model)
            results.append(
                EpochResult(
                    epoch=epoch,
                    train_loss=loss["train"],
                    val_loss=loss["val"],
                    perplexity=perplexity(loss["val"]),
                    bits_per_byte=bits_per_byte(loss["val"], tokens=metadata.val.tokens, text_bytes=metadata.val.bytes),
                    answers=[answer(write, tokenizer, prompt, params) for prompt in prompts],
                )
            )
            progress.advance(1)
    return Evaluation(questions=[prompt.question for prompt in prompts], epochs=results)


def _windows(tokens: Path, split: Split, manifest: Manifest, compute: Compute) -> Windows:
    ids, _ = place_tokens(open_tokens(tokens, split), "mmap", compute.device)
    return Windows(ids, context_length=manifest.model.context_length, device=compute.device)


def _refuse_mismatch(
    manifest: Manifest, metadata: TokenMetadata, tokenizer: TextTokenizer, tokenizer_file: Path
) -> None:
    """Model, tokens and tokenizer must be of one run."""
    for name, sha256 in (("tokens", metadata.tokenizer_sha256), (str(tokenizer_file), tokenizer.sha256)):
        if sha256 != manifest.tokenizer_sha256:
            raise UserError(
                f"the model was trained with another tokenizer (sha256 {manifest.tokenizer_sha256[:12]}) than that of "
                f"{name} ({sha256[:12]}); run `dvc repro` so that they belong together."
            )
