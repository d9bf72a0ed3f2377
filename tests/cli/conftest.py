"""The fixtures of whole projects, as tests/pipeline has them, and of a finished run, as tests/runs
has it."""

from tests.pipeline.conftest import finished, finished_template, project, template
from tests.runs.conftest import workspace

__all__ = ["finished", "finished_template", "project", "template", "workspace"]
