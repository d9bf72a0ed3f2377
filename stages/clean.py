"""data.raw -> data/clean: documents of any usual format, cleaned, filtered and counted."""

import os
from pathlib import Path

from tokenmill.core import paths
from tokenmill.core.executor import EngineParams, open_engine
from tokenmill.core.files import write_json
from tokenmill.core.params import Section, load
from tokenmill.data.clean import clean
from tokenmill.data.params import CleanParams, DataParams


class Params(Section):
    """What this stage reads from params.yaml."""

    data: DataParams
    clean: CleanParams
    runtime: EngineParams


def main() -> None:
    """Clean the raw text and report what was kept and dropped."""
    params = load(Params)
    with open_engine(params.runtime, threads=os.cpu_count() or 1) as engine:
        report = clean(raw=Path(params.data.raw), out=paths.CLEAN, params=params.clean, engine=engine)
    write_json(paths.CLEAN_REPORT, report.full())
    write_json(paths.METRICS / "clean.json", report.flat())
    print(report.summary())
