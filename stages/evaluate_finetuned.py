"""Stage `evaluate_finetuned`: measure every epoch of a fine-tuned model as `evaluate` measures
those of its base, and show the answers of both."""

from tokenmill.core import paths
from tokenmill.core.files import write_json, write_text
from tokenmill.core.params import load
from tokenmill.display import say
from tokenmill.evaluation.evaluate import HeldOut, ask_held_out, evaluate
from tokenmill.evaluation.prompts import EvaluateSections
from tokenmill.evaluation.results import Evaluation
from tokenmill.formats.records import read_record, rounded
from tokenmill.formats.token_file import read_metadata
from tokenmill.reports.answers import beside_base


def main() -> None:
    """Write reports/finetuned.md and metrics/finetuned/eval.json about models/finetuned.

    `base_text_loss` in metrics/finetuned/eval.json is the loss on the base's own text, which shows
    what was forgotten. train.json beside it has the loss on held-out chats.
    """
    sections = load(EvaluateSections)
    evaluation, _ = evaluate(
        models=paths.FINETUNED,
        tokens=paths.TOKENS,
        tokenizer_file=paths.TOKENIZER,
        sections=sections,
    )
    asked = read_record(paths.HELD_OUT, HeldOut)
    held_out = ask_held_out(
        asked.chats,
        base=paths.MODEL,
        tuned=paths.FINETUNED,
        tokenizer_file=paths.TOKENIZER,
        sections=sections,
    )
    base = read_record(paths.EVALUATION, Evaluation)
    last = evaluation.epochs[-1]
    text = read_metadata(paths.TOKENS).train
    page = beside_base(
        base,
        evaluation,
        held_out,
        chats=asked,
        text_bytes_per_token=text.bytes / max(1, text.text_tokens),
    )
    write_text(paths.FINETUNED_REPORT, page)
    losses = {
        "base_text_loss": rounded(last.val_loss),
        "base_text_loss_before": rounded(base.epochs[-1].val_loss),
    }
    write_json(paths.FINETUNED_METRICS / "eval.json", evaluation.metrics(last) | losses)
    say(f"base and fine-tuned side by side: {paths.FINETUNED_REPORT}")
