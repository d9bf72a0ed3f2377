"""All checks, in the order in which a run would meet what they look for; each found as soon as it is known."""

from collections.abc import Collection, Iterator
from pathlib import Path

from dvc.repo import Repo

from tokenmill import paths
from tokenmill.doctor import dvc_setup, environment, git_state, parameters, pipeline
from tokenmill.doctor.finding import Finding
from tokenmill.documents.sources import Found
from tokenmill.errors import UserError
from tokenmill.schema import AllParams
from tokenmill.tokenization.metadata import TokenMetadata, read_metadata

DATA = ("clean", "tokenizer", "tokenize", "unpack")
"""Stages that make the tokens."""
STAGES = (*DATA, "train")
"""Stages whose outputs take room."""


def examine(root: Path) -> Iterator[Finding]:
    """Look at the project in the folder `root`; nothing is changed."""
    yield from environment.check(root)
    finding, params = parameters.check_params(root)
    yield finding
    found: Found | None = None
    if params:
        finding, found = parameters.check_raw(root, params)
        yield finding
    yield from git_state.checks(root)
    finding, repo = dvc_setup.open_repository(root)
    yield finding
    to_run: Collection[str] = STAGES
    if repo:
        yield from dvc_setup.checks(repo)
        finding, stages = pipeline.check_status(repo)
        yield finding
        runs = pipeline.check_running(root)
        yield runs
        if runs.level == "ok":  # else it is being written
            yield pipeline.check_leftovers(root)
        to_run = STAGES if stages is None else stages
    if params:
        yield from _of_training(root, params, repo, found, to_run)


def _of_training(
    root: Path, params: AllParams, repo: Repo | None, found: Found | None, to_run: Collection[str]
) -> Iterator[Finding]:
    """Device, memory and disk; PyTorch is loaded here, and not before."""
    from tokenmill.doctor import device, needs, room  # noqa: PLC0415

    tokens = None if set(DATA) & set(to_run) else _tokens(root)
    finding, compute = device.compute_of(params)
    yield finding
    if compute:
        yield from device.check_compiler(params.runtime, compute)
        yield room.check_memory(params, compute, needs.vocabulary(params, tokens))
    if tokens is None and found is None and params.data.raw != parameters.BUILT_IN:
        return  # there is no text, which has been said
    text = needs.text_bytes(found.sources) if found else parameters.BUILT_IN_BYTES * params.sample.conversations
    needed = needs.needs(params, text=text, tokens=tokens, to_run=to_run)
    cache, linked = (Path(repo.cache.local.path), dvc_setup.links(repo)) if repo else (root, True)
    yield from room.check_disk(needed, workspace=root, cache=cache, linked=linked)


def _tokens(root: Path) -> TokenMetadata | None:
    try:
        return read_metadata(root / paths.TOKENS)
    except UserError:
        return None
