"""Stage `evaluate`: measure every epoch by losses on fixed documents and answers to fixed
prompts."""

from tokenmill.core import paths
from tokenmill.core.files import write_json
from tokenmill.core.params import load
from tokenmill.evaluation.document_losses import GROUPS, loss_by
from tokenmill.evaluation.evaluate import evaluate
from tokenmill.evaluation.measured_documents import by_group, write_documents, write_table
from tokenmill.evaluation.prompts import EvaluateSections


def main() -> None:
    """Write reports/evaluation.json, reports/validation_documents.csv, metrics/eval.json and the
    losses by source and by language about models/gpt."""
    sections = load(EvaluateSections)
    evaluation, documents = evaluate(
        models=paths.MODEL,
        tokens=paths.TOKENS,
        tokenizer_file=paths.TOKENIZER,
        sections=sections,
    )
    write_json(paths.EVALUATION, evaluation.model_dump())
    table = documents.table()
    write_documents(paths.VALIDATION_DOCUMENTS, table)
    for group in GROUPS:
        write_table(loss_by(group), by_group(table, group))
    write_json(paths.METRICS / "eval.json", evaluation.metrics(evaluation.epochs[-1]))
