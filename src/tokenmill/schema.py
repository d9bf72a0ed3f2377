"""The whole of params.yaml as one model, checked before any stage begins its work.

A stage reads only the sections that it names, but a mistake in any section should end the first
stage, not the last one, hours later. Each stage reads a part of `runtime` and ignores the rest, so
unknown keys of `runtime` are refused only here. This module can refuse a run but never change its
result, so DVC does not track it.
"""

import contextlib
import functools
import os
import re
import time
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from tokenmill import git
from tokenmill.core.errors import UserError
from tokenmill.core.params import (
    PARAMS_FILE,
    RANDOM,
    ParamsError,
    Section,
    dotted,
    in_sections,
    parse_yaml,
    read_yaml,
    validate,
)
from tokenmill.core.paths import PACKED, SAMPLE, TOKENS, VALIDATION_NAME
from tokenmill.data.params import CleanParams, DataParams
from tokenmill.dvc_lock import Lock
from tokenmill.evaluation.benchmark_items import (
    BenchmarksParams,
    benchmark_file,
    is_tracked,
    read_items,
)
from tokenmill.evaluation.prompts import EvaluateParams, normalized, prompts_beside
from tokenmill.executors.params import ExecutorParams
from tokenmill.finetuning.params import FinetuneSection
from tokenmill.formats.metrics import TokensMetrics, read_metrics
from tokenmill.formats.mixture import check_mixture
from tokenmill.formats.raw_text import Objects, Raw, raw_text
from tokenmill.formats.token_file import compressed_file, other_form, read_metadata, too_short
from tokenmill.model.config import ModelParams
from tokenmill.model.manifest import CONFIG, read_config
from tokenmill.sample.generator import TRAIN, VALIDATION, SampleParams
from tokenmill.tokens.params import TokenizeParams, TokenizerParams, TraceParams
from tokenmill.training.params import ModelSection, RuntimeParams, TrainSection
from tokenmill.words.units import override

BEFORE_TRAINING = {
    "sample": ["sample"],
    "clean": ["clean", "data.encoding"],
    "tokenizer": ["tokenizer"],
    "tokenize": ["tokenize"],
}
"""The stages that make tokens, each with its parameters in dvc.yaml."""

CHARACTERS = 256
"""The vocabulary size that is assumed for a character tokenizer that is not trained yet."""


class RuntimeSection(RuntimeParams, ExecutorParams, extra="forbid"):
    """The section `runtime`: how fast a stage runs, and where and in which form its text and tokens
    lie, never what they are. So no stage depends on it."""


class AllParams(Section):
    """Every section of params.yaml."""

    data: DataParams
    sample: SampleParams
    clean: CleanParams
    tokenizer: TokenizerParams
    tokenize: TokenizeParams
    model: ModelSection
    train: TrainSection
    evaluate: EvaluateParams
    trace: TraceParams
    benchmarks: BenchmarksParams
    finetune: FinetuneSection
    runtime: RuntimeSection


@contextlib.contextmanager
def with_way_back(path: Path = PARAMS_FILE) -> Iterator[None]:
    """Add to a refusal the command that takes the refused values back.

    DVC leaves the values of an experiment in params.yaml, also those that are refused, so that
    every later experiment would have them too.
    """
    try:
        yield
    except UserError as error:
        _show_git(path)
        command = way_back(error.parameters, path) if isinstance(error, ParamsError) else ""
        if not command:
            raise
        raise UserError(f"{error}\n{command}") from None


def _show_git(path: Path) -> None:
    """Give a file a time that git does not know.

    DVC writes the committed params.yaml and the tried values within a second, and git, which
    compares sizes and whole seconds, may take one for the other.
    """
    ahead = time.time() + 1
    with contextlib.suppress(OSError):
        os.utime(path, (ahead, ahead))


def way_back(refused: Sequence[str], path: Path) -> str:
    """A sentence with the command by which refused values become those of the last commit again,
    and no other edit is lost.

    Empty where the last commit has the same values, or none; and in a copy of the project, as of a
    queued experiment, for the project's own file does not have the values.

    Args:
        refused: dotted names of parameters or sections.
        path: params.yaml.
    """
    committed = git.content(path.parent, "HEAD", Path(path.name))
    if not committed or ".dvc" in path.resolve().parts:
        return ""
    try:
        now = dict(dotted(read_yaml(path)))
        then = dict(dotted(parse_yaml(committed, path)))
    except UserError:
        return ""
    changed = [name for name in now | then if repr(now.get(name)) != repr(then.get(name))]
    tried = [name for name in in_sections(now | then, refused) if name in changed]
    is_alone = len(changed) == len(tried) == _changed_lines(path)
    # DVC can set a value that was there before, and neither add nor remove one
    if not tried or not (is_alone or now.keys() >= set(tried) <= then.keys()):
        return ""
    command = f"git checkout {path}"
    if not is_alone:
        command = " ".join(["dvc exp run", *(override(name, then[name]) for name in tried)])
    kept = "" if is_alone else " and keeps your other changes"
    stays, them = ("stays", "it") if len(tried) == 1 else ("stay", "them")
    return (
        f"{', '.join(tried)} {stays} in {path} until you take {them} back: `{command}` does "
        f"that{kept}."
    )


def _changed_lines(path: Path) -> int:
    """Lines of a file that are not as in the last commit."""
    numbers = git.ask(path.parent, "diff", "--numstat", "HEAD", "--", path.name) or "0"
    return max(map(int, numbers.split()[:2]))


def check_all(path: Path = PARAMS_FILE) -> AllParams:
    """Read and check every section."""
    params = validate(AllParams, read_yaml(path), path)
    _check_start(params.model, path)
    _check_length(params, path)
    return params


def expected_vocabulary(params: AllParams, root: Path) -> int:
    """The size of the vocabulary that the tokenizer of the project in `root` will have.

    Raises:
        UserError: training cannot start from the model that params.yaml names.
    """
    if params.model.start:
        _check_start(params.model, root / PARAMS_FILE)
        return read_config(root / params.model.start).vocab_size
    return params.tokenizer.vocab_size if params.tokenizer.type == "bpe" else CHARACTERS


def lock_of_tokens(params: AllParams, root: Path) -> Lock | None:
    """The dvc.lock of the project in `root`; None if it has not these parameters for everything
    that makes tokens."""
    try:
        lock = Lock.read(root)
    except UserError:  # it is damaged
        return None
    values = dict(dotted(params.model_dump()))
    read = {"clean": params.data.raw, "tokenizer": params.model.start_from}
    is_of_these = all(
        os.path.realpath(root / path) in lock.read_paths(stage, root)
        for stage, path in read.items()
    ) and all(
        lock.of(stage).values == in_sections(values, names)
        for stage, names in BEFORE_TRAINING.items()
    )
    return lock if is_of_these else None


def refuse_for_stages(params: AllParams) -> None:
    """Refuse what a stage would refuse.

    Raises:
        ParamsError: see `problems_of_stages`.
    """
    if problems := problems_of_stages(params, Path()):
        raise ParamsError(PARAMS_FILE, problems)


def problems_of_stages(
    params: AllParams, root: Path, *, names: Collection[str] | None = None
) -> list[tuple[str, str]]:
    """What a stage of the project at `root` would refuse, perhaps hours later, although each value
    by itself is allowed: the dotted names of parameters, each with a sentence.

    These are text, prompts and benchmarks that are missing or damaged, unless DVC makes or fetches
    them; a mixture of other sources than the text has; LoRA, Muon or float16 on matrices that are
    cut; an unknown language; and tokens in another form than training wants them. `names` are those
    of the files of the text, if it is known already which there are, because listing takes seconds
    if they are many or a server does not answer.
    """
    found = list[tuple[str, str]]()
    about = functools.partial(_noted, found)
    raw = raw_text(params.data.raw, root)
    is_sample = raw == root / SAMPLE
    with about("data.raw"):
        if is_sample:
            names = [TRAIN, VALIDATION]
        elif names is None:
            names = _names_of_text(raw, "data.raw")
        # The stage `train` refuses a source whose documents were all dropped
        if params.data.mixture and names:
            with about("data.mixture"):
                sources = _training_sources(names, params.tokenize)
                check_mixture(params.data.mixture, sources, "data.raw")
    if params.finetune.methods and params.finetune.data:
        with about("finetune.data"):
            _names_of_text(raw_text(params.finetune.data, root), "finetune.data")
    with about("finetune.methods"):
        params.finetune.refuse_sharding(params.runtime)
    with about("runtime.parallel"):
        params.train.refuse_sharding(params.runtime)
    with about("clean.filters.languages"):
        params.clean.filters.refuse_unknown_languages()
    with about("evaluate.prompts"):
        prompts = params.evaluate.prompts
        if prompts == "auto":
            prompts = prompts_beside(raw) if names and not is_sample else None
        for one in prompts or []:
            with about("evaluate.prompts"):
                normalized(one, params.clean.mode)
    for name in params.benchmarks.names:
        if benchmark_file(name, root).exists() or not is_tracked(name, root):
            with about("benchmarks.names"):
                read_items(name, root)
    # Of another text or parameter, the stage `unpack` will write tokens in the form that is wanted
    is_compressed = compressed_file(root / TOKENS).exists()
    problem = other_form(params.runtime.token_placement, compressed=is_compressed)
    if problem and _are_unpacked(params, root):
        found.append(("runtime.token_placement", problem))
    return found


@contextlib.contextmanager
def _noted(problems: list[tuple[str, str]], parameter: str) -> Iterator[None]:
    """Add an error of this block to the problems, as one of this parameter. Lines of its own, as of
    a file of prompts, are indented."""
    try:
        yield
    except UserError as error:
        problems.append((parameter, str(error).replace("\n", "\n  ")))


def _names_of_text(place: Raw, parameter: str) -> Collection[str] | None:
    """The names of the files of the text at `place`, relative to it; None if DVC has yet to fetch
    them.

    Raises:
        UserError: there is no readable text.
    """
    # Only these checks need the libraries
    from tokenmill.data.readers import FORMATS  # noqa: PLC0415
    from tokenmill.data.sources import find_sources, tracked_by_dvc  # noqa: PLC0415

    if isinstance(place, Path) and not place.exists() and tracked_by_dvc(place):
        return None
    return [source.name for source in find_sources(place, FORMATS, parameter=parameter).sources]


def _training_sources(names: Collection[str], params: TokenizeParams) -> set[str]:
    """The sources of the training text, as far as the names of its files tell; see
    `choose_split`."""
    train = [name for name in names if not re.search(VALIDATION_NAME, name)]
    is_by_name = params.split == "auto" and train
    return {name.split("/")[0] for name in (train if is_by_name else names)}


def _are_unpacked(params: AllParams, root: Path) -> bool:
    """Whether the tokens of today's text and parameters are unpacked already."""
    try:
        unpacked = read_metadata(root / TOKENS)
        return unpacked == read_metadata(root / PACKED) and _is_same_text(params, root)
    except UserError:  # one of them is missing, or of another version
        return False


def _check_start(model: ModelSection, path: Path) -> None:
    if model.start is None:
        return
    folder = path.parent / model.start
    if not (folder / CONFIG).exists():
        problem = (
            f"model.start_from ({model.start_from}) holds no {CONFIG}; `tokenmill import` writes "
            f"such a folder, `dvc pull {model.start_from}` fetches one, and {RANDOM} stands for "
            "random weights."
        )
        raise ParamsError(path, [("model.start_from", problem)])
    found = read_config(folder)
    names = [name for name in ModelParams.model_fields if name != "dropout"]
    start = f"{model.start_from}, where training starts"
    problems = [
        (f"model.{name}", f"model.{name} ({mine}) must be {there}, as in {start}.")
        for name in names
        if (mine := getattr(model, name)) != (there := getattr(found, name))
    ]
    if problems:
        raise ParamsError(path, problems)


def _check_length(params: AllParams, path: Path) -> None:
    """Refuse a context longer than the text was in the last run, if the text is still the same."""
    try:
        counted = read_metrics(TokensMetrics, path.parent)
    except UserError:  # there was no run, or what it left is damaged
        return
    problem = too_short(counted.train_tokens, params.model.context_length)
    if problem and _is_same_text(params, path.parent):
        raise ParamsError(path, [("model.context_length", problem)])


def _is_same_text(params: AllParams, root: Path) -> bool:
    """Whether dvc.lock has today's parameters for everything that makes tokens, and today's size of
    the raw text."""
    lock = lock_of_tokens(params, root)
    if lock is None:
        return False
    size = lock.read_paths("clean", root)[os.path.realpath(root / params.data.raw)]
    raw = raw_text(params.data.raw, root)
    if isinstance(raw, Objects):
        try:
            return size == sum(size for size, _ in raw.versions.values())
        except UserError:  # the server cannot be asked
            return False
    return size == sum(file.stat().st_size for file in [raw, *raw.rglob("*")] if file.is_file())
