"""The fixtures of whole projects, as tests/pipeline has them."""

from tests.pipeline.conftest import finished, finished_template, project, template

__all__ = ["finished", "finished_template", "project", "template"]
