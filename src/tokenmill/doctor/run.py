"""All checks, in the order in which a run would meet what they look for; each found as soon as it is known."""

from collections.abc import Collection, Iterator
from pathlib import Path

from dvc.repo import Repo

from tokenmill.core import paths
from tokenmill.core.errors import UserError
from tokenmill.core.token_file import TokenMetadata, read_metadata
from tokenmill.data.sources import Found
from tokenmill.doctor import checks, dvc
from tokenmill.doctor.finding import Finding
from tokenmill.schema import AllParams

DATA = ("clean", "tokenizer", "tokenize", "unpack")
"""Stages that make the tokens."""


STAGES = (*DATA, "train")
"""Stages whose outputs take room."""


def examine(root: Path) -> Iterator[Finding]:
    """Look at the project in the folder `root`; nothing is changed."""
    yield from checks.check(root)
    finding, params = checks.check_params(root)
    yield finding
    found: Found | None = None
    if params:
        finding, found = checks.check_raw(root, params)
        yield finding
    yield from checks.checks(root)
    finding, repo = dvc.open_repository(root)
    yield finding
    to_run: Collection[str] = STAGES
    if repo:
        yield from dvc.checks(repo)
        finding, stages = dvc.check_status(repo)
        yield finding
        runs = dvc.check_running(root)
        yield runs
        if runs.level == "ok":  # else it is being written
            yield dvc.check_leftovers(root)
        to_run = STAGES if stages is None else stages
    if params:
        yield from _of_training(root, params, repo, found, to_run)


def _of_training(
    root: Path, params: AllParams, repo: Repo | None, found: Found | None, to_run: Collection[str]
) -> Iterator[Finding]:
    """Device, memory and disk; PyTorch is loaded here, and not before."""
    from tokenmill.doctor import checks, disk  # noqa: PLC0415 (PyTorch takes seconds to load)

    tokens = None if set(DATA) & set(to_run) else _tokens(root)
    finding, compute = checks.compute_of(params)
    yield finding
    if compute:
        yield from checks.check_compiler(params.runtime, compute)
        yield disk.check_memory(params, compute, disk.vocabulary(params, tokens))
    if tokens is None and found is None and params.data.raw != checks.BUILT_IN:
        return  # there is no text, which has been said
    text = disk.text_bytes(found.sources) if found else checks.BUILT_IN_BYTES * params.sample.conversations
    needed = disk.needs(params, text=text, tokens=tokens, to_run=to_run)
    cache, linked = (Path(repo.cache.local.path), dvc.links(repo)) if repo else (root, True)
    yield from disk.check_disk(needed, workspace=root, cache=cache, linked=linked)


def _tokens(root: Path) -> TokenMetadata | None:
    try:
        return read_metadata(root / paths.TOKENS)
    except UserError:
        return None
