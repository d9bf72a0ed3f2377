"""Stage `clean`: data.raw -> data/clean, documents of any usual format, cleaned, filtered and
counted."""

from tokenmill.core import paths
from tokenmill.core.files import write_json
from tokenmill.core.params import Section, load
from tokenmill.data.clean import clean
from tokenmill.data.params import CleanParams, DataParams
from tokenmill.display import say
from tokenmill.executors.params import ExecutorParams, open_executor
from tokenmill.formats.raw_text import raw_text
from tokenmill.words.cleaning import cleaning_in_words


class Params(Section):
    """The sections of params.yaml that this stage reads."""

    data: DataParams
    clean: CleanParams
    runtime: ExecutorParams


def main() -> None:
    """Clean the raw text and report what was kept and dropped."""
    params = load(Params)
    with open_executor(params.runtime) as executor:
        report = clean(
            raw=raw_text(params.data.raw),
            out=paths.CLEAN,
            params=params.clean,
            encoding=params.data.encoding,
            executor=executor,
            store=params.runtime.store,
        )
    write_json(paths.CLEAN_REPORT, report.model_dump(by_alias=True))
    write_json(paths.METRICS / "clean.json", report.metrics())
    say(cleaning_in_words(report))
