"""Stage `benchmark`: measure every epoch on benchmarks; without any, only say so."""

from tokenmill.core import paths
from tokenmill.core.files import write_json
from tokenmill.core.params import DeviceParams, Section, load
from tokenmill.display import say
from tokenmill.evaluation.benchmark_items import BenchmarksParams
from tokenmill.evaluation.benchmark_results import BenchmarkRow, BenchmarksFile
from tokenmill.evaluation.trace import Tracer
from tokenmill.formats.records import write_rows
from tokenmill.formats.token_index import read_index_metadata
from tokenmill.tokens.params import OverlapParams


class Params(Section):
    """The sections that this stage reads."""

    benchmarks: BenchmarksParams
    trace: OverlapParams
    runtime: DeviceParams


def main() -> None:
    """Write reports/benchmarks.json and metrics/benchmarks.{json,csv} about models/gpt."""
    params = load(Params)
    found = _results(params)
    write_json(paths.BENCHMARK_RESULTS, found.model_dump())
    write_rows(paths.BENCHMARK_ROWS, BenchmarkRow, found.rows())
    epochs = len(found.results[0].epochs) if found.results else 0
    write_json(paths.METRICS / "benchmarks.json", found.metrics(epochs))
    for result in found.results:
        last = result.accuracy(result.epochs[-1])
        chance = "" if result.chance is None else f", {result.chance:.1%} by chance"
        say(
            f"{result.name}: {last.value:.1%} of {result.items:,} items right "
            f"({last.low:.1%} to {last.high:.1%}{chance})"
        )
    if not found.results:
        say("no benchmarks: benchmarks.names is empty")


def _results(params: Params) -> BenchmarksFile:
    words = params.trace.overlap_words
    if not params.benchmarks.names:
        return BenchmarksFile(overlap_words=words, results=[])
    # Importing this loads PyTorch
    from tokenmill.evaluation.benchmarks import run_benchmarks  # noqa: PLC0415

    tracer = None
    if read_index_metadata(paths.INDEX).parts:
        tracer = Tracer.open(paths.INDEX, paths.TOKENS, paths.TOKENIZER, min_words=words)
    return run_benchmarks(
        params.benchmarks,
        models=paths.MODEL,
        tokenizer_file=paths.TOKENIZER,
        device=params.runtime.device,
        tracer=tracer,
        overlap_words=words,
    )
