"""What a person has set for git, DVC and the network, and what the tests set in its place."""

import os
from pathlib import Path

HERE = Path(__file__).parent

SETTINGS = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": str(HERE / "gitconfig"),
    "DVC_SYSTEM_CONFIG_DIR": str(HERE / "no_dvc_settings"),
    "DVC_GLOBAL_CONFIG_DIR": str(HERE / "no_dvc_settings"),
    "DVC_NO_ANALYTICS": "1",
    "NO_PROXY": "127.0.0.1,localhost",
    "no_proxy": "127.0.0.1,localhost",
}
"""Nobody's signed commits, hooks or shared cache, for DVC's folder is not there; no process that
tells DVC's makers of each command; and servers on this machine are reached without a proxy."""

LEFT_OUT = ("COLUMNS", "LINES", "PYTHONWARNINGS")
"""The size of a terminal, and the wish for more warnings."""


def isolate() -> None:
    """Put these settings into the environment of this process and of those that it starts."""
    os.environ.update(SETTINGS)
    for name in LEFT_OUT:
        os.environ.pop(name, None)
