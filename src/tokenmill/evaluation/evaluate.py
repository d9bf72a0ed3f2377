"""Every epoch of a training, measured the same way: losses on fixed windows, answers to fixed prompts."""

from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from tokenmill.display.progress import Progress
from tokenmill.errors import UserError
from tokenmill.evaluation.answers import Answer, Prompt, answer, prepare, share_found
from tokenmill.evaluation.params import EvaluateParams
from tokenmill.model.weights import load_model
from tokenmill.tokenization.metadata import SPLITS, Split, TokenMetadata
from tokenmill.tokenization.token_file import open_tokens, read_metadata
from tokenmill.tokenization.tokenizer import TextTokenizer, read_tokenizer
from tokenmill.training.batches import Windows, evenly_spread
from tokenmill.training.device import Compute, choose_compute, place_tokens
from tokenmill.training.history import bits_per_byte, perplexity, short
from tokenmill.training.manifest import Manifest, read_manifest
from tokenmill.training.params import RuntimeParams
from tokenmill.training.step import mean_loss


@dataclass(frozen=True)
class EpochResult:
    """One epoch's weights, measured."""

    epoch: int
    train_loss: float
    """Of these weights on evenly spread training windows, as many as give the validation loss; nats per token."""
    val_loss: float
    val_tokens_per_byte: float
    answers: list[Answer]

    def metrics(self) -> dict[str, float]:
        """`metrics/eval.json` for this epoch."""
        per_byte = bits_per_byte(self.val_loss, tokens=1, text_bytes=1) * self.val_tokens_per_byte
        return {
            "perplexity": short(perplexity(self.val_loss)),
            "bits_per_byte": short(per_byte),
            "overfit": short(self.val_loss - self.train_loss),
            "expected_found": short(share_found(self.answers)),
            "repetition": short(fmean(a.repetition for a in self.answers)) if self.answers else 0.0,
        }


@dataclass(frozen=True)
class Evaluation:
    """All epochs of a training."""

    prompts: list[Prompt]
    epochs: list[EpochResult]

    def as_json(self) -> dict[str, Any]:
        """For `reports/evaluation.json`: prompts, and each epoch's metrics and answers."""
        return {
            "prompts": [{"prompt": p.shown, "expect": p.expect, "left_out": p.left_out} for p in self.prompts],
            "epochs": [
                {
                    "epoch": result.epoch,
                    "train_loss": short(result.train_loss),
                    "val_loss": short(result.val_loss),
                    "metrics": result.metrics(),
                    "answers": [asdict(a) for a in result.answers],
                }
                for result in self.epochs
            ],
        }


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
            val = metadata.val
            answers = [answer(model, tokenizer, prompt, params) for prompt in prompts]
            results.append(EpochResult(epoch, loss["train"], loss["val"], val.tokens / val.bytes, answers))
            progress.advance(1)
    return Evaluation(prompts, results)


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
