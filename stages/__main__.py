"""Run one stage of the pipeline: `python -m stages NAME`, as dvc.yaml does.

The code beside this file is the code that runs. A queued experiment works in a copy of the
repository. It must not import the library of the original, even if that is installed in the
environment.
"""

import importlib
import os
import signal
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def main() -> None:
    """Prepare this process, then import and run the stage that the command line names."""
    if not (3, 11) <= sys.version_info < (3, 15):  # (a user's `python` may be any)
        sys.exit(
            f"error: TokenMill needs Python 3.11 to 3.14, not {sys.version.split()[0]} "
            f"({sys.executable})."
        )
    names = sorted(path.stem for path in HERE.glob("[!_]*.py"))
    name, *more = sys.argv[1:] or [""]
    if name not in names or more:
        sys.exit(f"usage: python -m stages NAME; NAME is one of {', '.join(names)}")
    sys.path.insert(0, str(HERE.parent / "src"))
    # A program in the background may ignore this signal
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # Ctrl-C during the imports then ends this process without a traceback
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        importlib.import_module("tokenmill.process").prepare_process()
        stage = importlib.import_module("tokenmill.stage")
        work = importlib.import_module(f"stages.{name}")
    except ModuleNotFoundError as error:
        said = importlib.import_module("tokenmill.core.errors").missing_package(error)
        if said is None:
            raise
        sys.exit(f"error: {said}")
    except EOFError:  # of `marshal`: Python does not look whether its own files are whole
        sys.exit(importlib.import_module("tokenmill.byte_code").start_again())

    def checked() -> None:
        """Run the stage. Before it, check the whole params.yaml, so that a mistake in it ends the
        first stage. After it, check that its inputs are still the same."""
        schema = importlib.import_module("tokenmill.schema")
        with schema.with_way_back():
            schema.check_all()
        inputs = importlib.import_module("tokenmill.inputs").Inputs(name)
        work.main()
        if os.environ.get("RANK", "0") == "0":  # of several processes one says it
            inputs.check_unchanged()

    stage.run_stage(checked)


if __name__ == "__main__":
    main()
