"""Show what the data is like: reports/data.html for people, numbers and tables for DVC."""

from tokenmill import stage
from tokenmill.core import paths
from tokenmill.core.files import read_json, write_json, write_text
from tokenmill.core.params import Section, load
from tokenmill.core.token_file import read_metadata
from tokenmill.core.tokenizer import read_tokenizer, token_bytes
from tokenmill.data.params import CleanParams, DataParams
from tokenmill.reports.data_report import render_report
from tokenmill.reports.data_stats import Measures, count_tokens, read_clean_report, write_tables
from tokenmill.tokens.params import TokenizeParams, TokenizerParams


class Params(Section):
    """What the report shows of params.yaml."""

    data: DataParams
    clean: CleanParams
    tokenizer: TokenizerParams
    tokenize: TokenizeParams


def main() -> None:
    """data/clean_report.json, tokenizer, tokens -> reports/data.html, metrics/data.json, four tables."""
    params = load(Params)
    tokenizer = read_tokenizer(paths.TOKENIZER)
    vocabulary = token_bytes(tokenizer)
    metadata = read_metadata(paths.TOKENS)
    counts = count_tokens(paths.TOKENS, metadata, tokenizer)
    measures = Measures(read_clean_report(paths.CLEAN_REPORT), counts, metadata)
    write_json(paths.METRICS / "data.json", measures.metrics())
    write_tables(paths.METRICS, measures, vocabulary)
    page = render_report(
        measures,
        vocabulary,
        tokenizer=read_json(paths.METRICS / "tokenizer.json"),
        tokens=read_json(paths.METRICS / "tokens.json"),
        params=params.model_dump(),
    )
    write_text(paths.DATA_REPORT, page)
    print(f"data report: {paths.DATA_REPORT}")


if __name__ == "__main__":
    stage.run(main)
