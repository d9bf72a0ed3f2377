"""Checks of parameters, text, compiler, memory and disk; the estimate of disk against a real
run."""

import gzip
import os
import shutil
from pathlib import Path
from shlex import quote
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import torch

from tests.doctor.small import opened, single
from tests.imports import ROOT
from tests.pipeline.project import Project as Repository
from tests.pipeline.project import change_params
from tests.training.tiny import write_tokens
from tokenmill.core.errors import UserError
from tokenmill.doctor import checks, dvc
from tokenmill.doctor.finding import Finding, Pipeline, Project
from tokenmill.formats.token_file import read_metadata
from tokenmill.model.config import ModelConfig
from tokenmill.model.device import Compute
from tokenmill.schema import check_all
from tokenmill.training.schedule import Workload
from tokenmill.training.size import memory
from tokenmill.words.units import override, size


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A folder with params.yaml and nothing else."""
    shutil.copy(ROOT / "params.yaml", tmp_path)
    return Project(tmp_path, params=check_all(tmp_path / "params.yaml"))


def test_every_problem_of_params_is_listed(project: Project):
    change_params(project.root / "params.yaml", {"model.n_layer": 0, "train.batch_size": 0})
    project.params = None
    finding = single(checks.check_params, project)
    assert finding.level == "problem"
    assert "model.n_layer (0)" in finding.text
    assert "train.batch_size (0)" in finding.text
    assert project.params is None


@pytest.mark.parametrize(
    "change",
    [
        {"data.mixture": {"books": 2}},
        {"clean.filters.languages": ["xx"]},
        {"evaluate.prompts": [{"text": "✓"}]},
        {"benchmarks.names": ["piqa"]},
        {"finetune.methods": ["full"], "finetune.data": "/nowhere/at/all"},
    ],
)
def test_a_value_that_a_stage_refuses_is_a_problem(project: Project, change: dict[str, Any]):
    """As `dvc repro` refuses it before its first stage."""
    assert list(checks.check_values(project)) == []
    change_params(project.root / "params.yaml", change)
    assert single(checks.check_params, project).level == "ok", "each value by itself is allowed"
    finding = single(checks.check_values, project)
    assert finding.level == "problem"
    assert list(change)[-1] in finding.text


def test_files_of_the_text_are_listed_once(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Of many that takes seconds."""
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts/a.txt").write_text("text")
    change_params(project.root / "params.yaml", {"data.mixture": {"a.txt": 2}})
    assert with_raw(project, str(tmp_path / "texts")).level == "ok"
    monkeypatch.delattr("tokenmill.data.sources.find_sources")
    assert list(checks.check_values(project)) == []


def test_a_text_that_is_not_there_is_looked_for_once(
    project: Project, monkeypatch: pytest.MonkeyPatch
):
    """A server that does not answer takes seconds, and the problem is said already."""
    change_params(project.root / "params.yaml", {"data.mixture": {"books": 2}})
    assert with_raw(project, "/nowhere/at/all").level == "problem"
    monkeypatch.delattr("tokenmill.data.sources.find_sources")
    assert list(checks.check_values(project)) == []


def with_raw(project: Project, raw: str) -> Finding:
    change_params(project.root / "params.yaml", {"data.raw": raw})
    project.params = check_all(project.root / "params.yaml")
    return single(checks.check_text, project)


def test_text_must_be_there(project: Project):
    assert single(checks.check_text, project).level == "ok", "the built-in text"
    assert with_raw(project, "data/raw/sample/").level == "ok", "the same"
    assert [finding.name for finding in checks.check_disk(project)] == ["disk"]
    missing = with_raw(project, "/nowhere/at/all")
    assert missing.level == "problem"
    assert "data.raw (/nowhere/at/all)" in missing.text
    tracked = project.root / "data/raw/mine"
    tracked.parent.mkdir(parents=True)
    tracked.with_name("mine.dvc").touch()
    pull = f"dvc pull {quote(str(tracked))}"
    assert with_raw(project, "data/raw/mine/books").fix == pull
    tracked.mkdir()
    emptied = with_raw(project, "data/raw/mine").fix or ""
    assert emptied.startswith("git checkout "), "`dvc repro` records an emptied folder"
    assert emptied.endswith(f" && {pull}")
    (tracked / "a.pdf").touch()
    assert "dvc pull" not in (with_raw(project, "data/raw/mine").fix or "")


def test_text_outside_needs_an_absolute_path(project: Project, tmp_path: Path):
    texts = tmp_path.parent / f"{tmp_path.name}-texts"
    texts.mkdir()
    (texts / "a.txt").write_text("12345")
    finding = with_raw(project, f"../{texts.name}")
    fix = f"dvc exp run {override('data.raw', str(texts.resolve()))}"
    assert (finding.level, finding.fix) == ("warning", fix)
    assert with_raw(project, str(texts)) == Finding("ok", "text", f"{texts}: 1 file, 5 bytes")
    assert project.raw
    assert [source.size for source in project.raw.sources] == [5]


@pytest.mark.parametrize("writable", [True, False])
def test_what_cannot_be_written_is_not_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, writable: bool
):
    done = list[str]()

    def looking(_: Project) -> list[Finding]:
        done.append("looked")
        return []

    def writing(_: Project) -> list[Finding]:
        done.append("wrote")
        return []

    monkeypatch.setattr(checks, "is_writable", lambda _: writable)
    monkeypatch.setattr(checks, "CHECKS", (writing, looking))
    monkeypatch.setattr(checks, "WRITING", (writing,))
    assert list(checks.run_checks(tmp_path)) == []
    assert done == (["wrote", "looked"] if writable else ["looked"])


@pytest.mark.parametrize(
    ("setting", "device", "level"),
    [
        ("on", "cpu", "problem"),
        ("on", "cuda", "problem"),
        ("auto", "cuda", "warning"),
        ("auto", "cpu", None),
        ("off", "cuda", None),
    ],
)
def test_compiler_is_checked_where_one_is_wanted(
    project: Project, setting: str, device: str, level: str | None, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PATH", os.devnull)
    for name in ("CC", "CXX"):
        monkeypatch.delenv(name, raising=False)
    change_params(project.root / "params.yaml", {"runtime.compile": setting})
    project.params = check_all(project.root / "params.yaml")
    project.compute = Compute(torch.device(device), torch.float32)
    assert [found.level for found in checks.check_compiler(project)] == ([level] if level else [])


@pytest.mark.parametrize(("device", "level"), [("auto", "problem"), ("cpu", "ok")])
def test_a_gpu_that_torch_cannot_use_is_a_problem(
    project: Project, device: str, level: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("tokenmill.model.device.unusable_gpu", lambda: "driver 550 is too old")
    change_params(project.root / "params.yaml", {"runtime.device": device})
    project.params = check_all(project.root / "params.yaml")
    finding = single(checks.check_device, project)
    assert finding.level == level
    assert ("550" in finding.text, "cpu" in (finding.fix or "")) == (level == "problem",) * 2


@pytest.mark.parametrize(("device", "other"), [("auto", "cpu"), ("cuda", "auto"), ("mps", "auto")])
def test_another_device_is_named(
    project: Project, device: str, other: str, monkeypatch: pytest.MonkeyPatch
):
    def refused(*_: object) -> Compute:
        raise UserError(device)

    monkeypatch.setattr(checks, "choose_compute", refused)
    change_params(project.root / "params.yaml", {"runtime.device": device})
    project.params = check_all(project.root / "params.yaml")
    assert single(checks.check_device, project).fix == f"set runtime.device to {other}"


@pytest.mark.parametrize(("precision", "level"), [("auto", "ok"), ("bfloat16", "warning")])
def test_a_precision_that_the_cpu_only_emulates_is_a_warning(
    project: Project, precision: str, level: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(torch.cpu, "get_capabilities", dict)
    change_params(project.root / "params.yaml", {"train.precision": precision})
    project.params = check_all(project.root / "params.yaml")
    finding = single(checks.check_device, project)
    assert finding.level == level
    assert ("train.precision" in (finding.fix or "")) == (level == "warning")


def test_checks_without_parameters_find_nothing(tmp_path: Path):
    for check in (checks.check_text, checks.check_device, checks.check_compiler):
        assert list(check(Project(tmp_path))) == []


@pytest.fixture
def large(project: Project) -> Project:
    """About 3 million parameters, 3 epochs."""
    changes = {
        "model.n_layer": 4,
        "model.n_embd": 256,
        "train.epochs": 3,
        "tokenizer.vocab_size": 320,
    }
    change_params(project.root / "params.yaml", changes)
    project.params = check_all(project.root / "params.yaml")
    return project


@pytest.mark.parametrize(("fraction", "level"), [(0.5, "problem"), (1.05, "warning"), (2.0, "ok")])
def test_disk_must_hold_what_will_be_written(
    large: Project, fraction: float, level: str, monkeypatch: pytest.MonkeyPatch
):
    assert large.params
    text = checks.CONVERSATION_BYTES * large.params.sample.conversations
    needed = checks.bytes_to_write(large.params, text=text, tokens=None, vocab_size=320)
    usage: Any = shutil.disk_usage("/")
    monkeypatch.setattr(
        shutil, "disk_usage", lambda _: usage._replace(free=int(fraction * sum(needed.values())))
    )
    finding = single(checks.check_disk, large)
    assert finding.level == level
    assert "checkpoints" in finding.text


@pytest.mark.parametrize(
    ("counted", "room", "levels"),
    [
        (10_000, checks.FEWEST_FILES, []),
        (10_000, checks.FEWEST_FILES - 1, ["problem"]),
        (0, 0, []),  # as a file system that counts no files
    ],
)
def test_a_disk_without_room_for_files_is_a_problem(
    repository: Repository,
    monkeypatch: pytest.MonkeyPatch,
    counted: int,
    room: int,
    levels: list[str],
):
    disk = SimpleNamespace(f_files=counted, f_favail=room)
    monkeypatch.setattr(os, "statvfs", lambda _: disk, raising=False)  # (Windows has none)
    found = list(checks.check_files(opened(repository)))  # the cache is on the same disk
    assert [finding.level for finding in found] == levels
    assert checks.check_files in checks.CHECKS


def test_without_links_the_cache_takes_as_much_again(
    repository: Repository, large: Project, monkeypatch: pytest.MonkeyPatch
):
    assert large.params
    text = checks.CONVERSATION_BYTES * large.params.sample.conversations
    parts = checks.bytes_to_write(large.params, text=text, tokens=None, vocab_size=320)
    usage: Any = shutil.disk_usage("/")
    checked = opened(repository)
    checked.params = large.params
    for is_linked, count in (
        (True, sum(parts.values())),
        (False, sum(parts.values()) + sum(parts[name] for name in checks.CACHED)),
    ):
        monkeypatch.setattr(dvc, "links", lambda _, answer=(is_linked, None): answer)
        for free, level in ((count - 1, "problem"), (count, "warning")):
            monkeypatch.setattr(
                shutil, "disk_usage", lambda _, free=free: usage._replace(free=free)
            )
            assert single(checks.check_disk, checked).level == level


def test_compressed_text_takes_its_whole_size(
    large: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(checks.UNPACKED, ".gz", 10**7)
    texts = tmp_path / "texts"
    texts.mkdir()
    (texts / "a.txt.gz").write_bytes(gzip.compress(b"text"))
    (texts / "b.txt").write_text("text")
    with_raw(large, str(texts))
    assert large.params
    text = int(checks.UNPACKED[".gz"] * (texts / "a.txt.gz").stat().st_size + 4)
    parts = checks.bytes_to_write(large.params, text=text, tokens=None, vocab_size=320)
    assert single(checks.check_disk, large).text.startswith(size(sum(parts.values())))


@pytest.mark.parametrize("known", [False, True])
def test_compressed_tokens_take_less_room(large: Project, known: bool):
    tokens = None
    if known:
        write_tokens(large.root / "data/tokens", sequences=1000)
        tokens = read_metadata(large.root / "data/tokens")
    assert large.params
    runtime = large.params.runtime.model_copy(update={"token_placement": "compressed"})
    plain, compressed = (
        checks.bytes_to_write(params, text=9999, tokens=tokens, vocab_size=320)
        for params in (large.params, large.params.model_copy(update={"runtime": runtime}))
    )
    if tokens:
        assert plain["tokens"] == tokens.train.file_bytes + tokens.val.file_bytes
    assert plain.pop("tokens") > 2 * compressed.pop("tokens") > 0
    assert plain == compressed


def test_wide_ids_take_more_room_compressed_than_narrow_ones(large: Project):
    """As many tokens of a larger vocabulary."""
    assert large.params
    runtime = large.params.runtime.model_copy(update={"token_placement": "compressed"})
    params = large.params.model_copy(update={"runtime": runtime})
    narrow, wide = (
        checks.bytes_to_write(params, text=9999, tokens=None, vocab_size=size)
        for size in (1 << 16, (1 << 16) + 1)
    )
    for part in ("packed tokens", "tokens"):
        assert 1.1 * narrow[part] < wide[part] < 1.3 * narrow[part]


@pytest.mark.parametrize(("most", "is_indexed"), [(10**6, True), (10**5, False)])
def test_the_index_takes_room_if_one_is_made(large: Project, most: int, is_indexed: bool):
    change_params(large.root / "params.yaml", {"trace.max_tokens": most})
    params = check_all(large.root / "params.yaml")
    parts = checks.bytes_to_write(params, text=10**6, tokens=None, vocab_size=320)
    assert (parts["index"] > 0) == is_indexed


def test_tokens_of_stages_that_run_again_are_not_counted(large: Project):
    write_tokens(large.root / "data/tokens", sequences=10)
    found = {}
    for stage in (*checks.TOKEN_STAGES, "train"):
        large.pipeline = Pipeline(outdated=[stage, "train"])
        found[stage] = "estimated" in single(checks.check_disk, large).text
    assert found == dict.fromkeys(checks.TOKEN_STAGES, True) | {"train": False}


def test_unlinked_cache_takes_its_own_disk(repository: Repository, project: Project):
    shm = Path("/dev/shm")  # noqa: S108 (a second file system)
    if not shm.is_dir() or shm.stat().st_dev == repository.root.stat().st_dev:
        pytest.skip("there is no second file system here")
    repository.run("dvc", "config", "cache.type", "hardlink,copy")
    repository.run("dvc", "cache", "dir", str(shm / f"tokenmill-test-{os.getpid()}"))
    checked = opened(repository)
    checked.params = project.params
    workspace, cache = checks.check_disk(checked)
    assert str(repository.root) in workspace.text
    assert str(shm) in cache.text


@pytest.mark.parametrize(
    ("what", "more", "level"),
    [
        ("fixed", -1, "problem"),
        ("fixed", 0, "warning"),
        ("total", -1, "warning"),
        ("total", 0, "ok"),
    ],
)
def test_memory_must_hold_the_model(
    large: Project, what: str, more: int, level: str, monkeypatch: pytest.MonkeyPatch
):
    change_params(large.root / "params.yaml", {"runtime.micro_batch_size": 8})
    large.params = check_all(large.root / "params.yaml")
    work = Workload(ModelConfig.of(large.params.model, 320), large.params.train, tokens=0)
    need = memory(work, sequences=8, precision=torch.float32, on_cpu=True)
    host = psutil.virtual_memory()._replace(available=getattr(need, what) + more)
    monkeypatch.setattr("psutil.virtual_memory", lambda: host)
    large.compute = Compute(torch.device("cpu"), torch.float32)
    assert single(checks.check_memory, large).level == level


def test_a_micro_batch_is_at_most_a_step(large: Project):
    change_params(large.root / "params.yaml", {"runtime.micro_batch_size": 100_000})
    large.params = check_all(large.root / "params.yaml")
    large.compute = Compute(torch.device("cpu"), torch.float32)
    assert "with 8 sequences at a time" in single(checks.check_memory, large).text


def test_nothing_is_estimated_without_text(project: Project):
    change_params(project.root / "params.yaml", {"data.raw": "/nowhere"})
    project.params = check_all(project.root / "params.yaml")
    assert list(checks.check_disk(project)) == []


@pytest.mark.slow
def test_estimate_agrees_with_a_real_run(finished: Repository):
    def bytes_of(pattern: str) -> int:
        return sum(path.stat().st_size for path in finished.root.glob(pattern) if path.is_file())

    params = check_all(finished.root / "params.yaml")
    stages = ("clean", "tokenize", "unpack", "index", "train")
    before = checks.bytes_to_write(
        params,
        text=bytes_of("data/raw/sample/*"),
        tokens=None,
        vocab_size=params.tokenizer.vocab_size,
        outdated=stages,
    )
    tokens = read_metadata(finished.root / "data/tokens")
    after = checks.bytes_to_write(
        params, text=0, tokens=tokens, vocab_size=tokens.vocab_size, outdated=stages
    )
    assert after["tokens"] == bytes_of("data/tokens/*.bin")
    assert after["weights of the epochs"] == pytest.approx(
        bytes_of("models/gpt/epoch-*/model.safetensors"), rel=0.05
    )
    newest = max((finished.root / ".resume").glob("*/step-*"))
    checkpoint = sum(path.stat().st_size for path in newest.glob("*.safetensors"))
    assert after["checkpoints"] == pytest.approx(4 * checkpoint, rel=0.1)
    assert bytes_of(".resume/*/step-*/*.safetensors") <= after["checkpoints"]
    for part, pattern in (
        ("clean text", "clean"),
        ("packed tokens", "packed"),
        ("tokens", "tokens"),
        ("index", "index"),
    ):
        written = bytes_of(f"data/{pattern}/*")
        assert written / 3 < before[part] < 3 * written, part


def test_nothing_to_write_is_well(project: Project):
    project.pipeline = Pipeline()
    (project.root / "data/tokens").mkdir(parents=True)
    found: list[Finding] = list(checks.check_disk(project))
    assert [finding.level for finding in found] == ["ok"]
