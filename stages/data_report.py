"""Stage `data_report`: describe the data in reports/data.html for people, and in metrics and tables
for DVC.

The parameters on the page are those that the stages before wrote beside their numbers.
"""

from tokenmill.core import paths
from tokenmill.core.files import write_json, write_text
from tokenmill.core.params import MixtureParams, Section, load
from tokenmill.display import say
from tokenmill.formats.metrics import CleanReport, TokenizerMetrics, TokensMetrics, read_metrics
from tokenmill.formats.records import read_record
from tokenmill.formats.tokenizer import read_tokenizer
from tokenmill.reports.data_report import render_data_report
from tokenmill.reports.data_stats import read_stats, write_tables


class Params(Section):
    """The section that this stage reads."""

    data: MixtureParams


def main() -> None:
    """Write reports/data.html, metrics/data.json and the tables in metrics/data from the clean
    report, the tokenizer and the tokens."""
    clean = read_record(paths.CLEAN_REPORT, CleanReport)
    stats = read_stats(paths.TOKENS, read_tokenizer(paths.TOKENIZER), clean)
    write_json(paths.METRICS / "data.json", stats.metrics())
    write_tables(paths.METRICS / "data", stats)
    page = render_data_report(
        stats,
        read_metrics(TokenizerMetrics),
        read_metrics(TokensMetrics),
        mixture=load(Params).data.mixture or {},
    )
    write_text(paths.DATA_REPORT, page)
    say(f"data report: {paths.DATA_REPORT}")
