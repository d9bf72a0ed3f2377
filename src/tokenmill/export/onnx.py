"""A model as one ONNX file: `input_ids` (batch, sequence) to `logits` (batch, sequence, vocabulary), in float32.

It has no cache of keys and values, so writing with it reads the whole text for each token.
"""

import contextlib
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path

import onnxscript  # noqa: F401  # pyright: ignore[reportMissingImports] (torch.onnx needs it, and imports it later)
import torch
from torch.export import Dim

from tokenmill.model.gpt import GPT

ONE_FILE = 2**30
"""Bytes of weights beyond which they are in `model.onnx.data`: protobuf holds 2 GiB."""


def write_onnx(model: GPT, file: Path) -> None:
    """Write the file: texts of any number and, up to the model's context, of any length."""
    example = torch.zeros((2, model.config.context_length), dtype=torch.int64)
    sizes = {0: Dim("batch"), 1: Dim("sequence", max=model.config.context_length)}
    with _quiet():
        torch.onnx.export(
            model,
            (example,),
            file,
            dynamo=True,
            input_names=["input_ids"],
            output_names=["logits"],
            dynamic_shapes=(sizes,),
            external_data=4 * sum(parameter.numel() for parameter in model.parameters()) > ONE_FILE,
            verbose=False,
        )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Leave out what the exporter says of other packages and of its own future."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
