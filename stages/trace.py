"""Stage `trace`: find where in the training text the answers of the last epoch stand, and what of
the prompts and of the validation text does."""

from pydantic import Field

from tokenmill.core import paths
from tokenmill.core.files import write_json
from tokenmill.core.params import ModeParams, Section, load
from tokenmill.display import say
from tokenmill.evaluation.document_losses import read_documents
from tokenmill.evaluation.results import Evaluation
from tokenmill.evaluation.trace import Tracer, Traces, TracesFile, trace_evaluation
from tokenmill.formats.records import read_record
from tokenmill.formats.token_index import read_index_metadata
from tokenmill.normalize import normalize_typed
from tokenmill.tokens.params import TraceParams


class MeasuredParams(Section, extra="ignore"):
    """The part of the section `train` that this stage reads."""

    validation_bytes: int | None = Field(ge=1)
    """The bytes of validation text on which losses are measured."""


class Params(Section):
    """The sections that this stage reads."""

    clean: ModeParams
    trace: TraceParams
    train: MeasuredParams


def main() -> None:
    """Write reports/answer_traces.json and metrics/trace.json."""
    params = load(Params)
    index = read_index_metadata(paths.INDEX)
    traces = _traces(params) if index.parts else None
    write_json(paths.TRACES, TracesFile(traces=traces).model_dump())
    metrics = traces.metrics() if traces else {}
    write_json(paths.METRICS / "trace.json", metrics)
    if traces is None:
        say(f"no index of {index.tokens:,} tokens, so no traces: trace.max_tokens is lower")
        return
    say(
        f"{metrics.get('answers_copied', 0):.0%} of the words of the answers stand in the training "
        f"text, {traces.min_words} or more in a row"
    )


def _traces(params: Params) -> Traces:
    tracer = Tracer.open(
        paths.INDEX, paths.TOKENS, paths.TOKENIZER, min_words=params.trace.min_words
    )
    evaluation = read_record(paths.EVALUATION, Evaluation)
    return trace_evaluation(
        evaluation,
        [normalize_typed(one.prompt, params.clean.mode) for one in evaluation.questions],
        read_documents(paths.VALIDATION_DOCUMENTS),
        tracer,
        tokens=paths.TOKENS,
        tokenizer_file=paths.TOKENIZER,
        overlap_words=params.trace.overlap_words,
        validation_bytes=params.train.validation_bytes,
    )
