"""`tokenmill profile`: a sentence with its evidence, a trace, and nothing else."""

import errno
import json
import os
import re
import shutil
from pathlib import Path
from unittest import mock

import pytest

from tests.imports import ROOT
from tests.training.tiny import small_memory, write_tokens
from tokenmill.cli.main import main
from tokenmill.cli.profile import Kind, Operation, Profile, kind_of
from tokenmill.core.params import read_yaml
from tokenmill.planning.benchmark import StepBenchmark
from tokenmill.planning.params_file import apply_override

SMALL = [
    "model.n_layer=2",
    "model.n_embd=16",
    "model.n_head=2",
    "model.context_length=8",
    "runtime.device=cpu",
]


@pytest.fixture
def project(here: Path) -> Path:
    content = read_yaml(ROOT / "params.yaml")
    for text in SMALL:
        apply_override(content, text)
    (here / "params.yaml").write_text(json.dumps(content))
    write_tokens(here / "data" / "tokens", sequences=19)
    return here


def test_it_leaves_a_trace_and_nothing_else(project: Path, capsys: pytest.CaptureFixture[str]):
    before = {path for path in project.rglob("*") if path.is_file()}
    main(["profile", "--steps", "3"])
    text = capsys.readouterr().out
    assert "aten::mm (products)" in text
    assert "reports/trace.json" in text
    assert {path for path in project.rglob("*") if path.is_file()} - before == {
        project / "reports" / "trace.json"
    }
    events = json.loads((project / "reports" / "trace.json").read_text())["traceEvents"]
    assert any(event.get("name") == "aten::mm" for event in events)
    main(["profile", "--steps", "1"])  # over the trace of before
    with pytest.raises(SystemExit, match=r"params\.yaml exists"):
        main(["profile", "--steps", "1", "--trace", "params.yaml"])
    json.loads((project / "params.yaml").read_text())


def test_a_profile_of_steps_that_memory_does_not_hold_is_refused(
    project: Path, monkeypatch: pytest.MonkeyPatch
):
    small_memory(monkeypatch, holds=2)
    with pytest.raises(SystemExit, match=r"8 sequences at a time; set runtime\.micro_batch_size"):
        main(["profile", "--steps", "3"])
    assert not list(project.glob("reports/*"))


def test_a_trace_that_cannot_be_written_is_refused_first(
    project: Path, monkeypatch: pytest.MonkeyPatch
):
    step = mock.Mock(return_value=8)
    monkeypatch.setattr(StepBenchmark, "step", step)
    with pytest.raises(SystemExit, match=os.strerror(errno.ENAMETOOLONG)):
        main(["profile", "--steps", "3", "--trace", 252 * "a"])
    assert not step.called


def test_without_tokens_the_way_out_is_named(project: Path):
    shutil.rmtree(project / "data")
    with pytest.raises(SystemExit, match=r"error: data.tokens.metadata\.json .*`dvc repro`"):
        main(["profile"])


def profiled(**seconds_and_calls: tuple[float, int]) -> Profile:
    """A second of steps with so many seconds in so many calls of each kind."""
    kinds: dict[str, Kind] = {"products": "products", "other": "other operations", "data": "data"}
    operations = [
        Operation(name, kinds[name], calls, s) for name, (s, calls) in seconds_and_calls.items()
    ]
    return Profile(
        steps=4, seconds=1.0, tokens=80, operations=operations, flops=1e9, product_rate=1e10
    )


@pytest.mark.parametrize(
    ("profile", "expected"),
    [
        (profiled(products=(0.6, 10), other=(0.3, 10)), "compute"),
        (profiled(products=(0.3, 10), other=(0.6, 10)), "memory bandwidth"),
        (profiled(products=(0.3, 10), other=(0.6, 100_000)), "launches of many tiny operations"),
        (profiled(products=(0.2, 10), data=(0.7, 10)), "data"),
        (profiled(products=(0.2, 10), other=(0.2, 10)), "Python"),
    ],
)
def test_the_largest_share_limits(profile: Profile, expected: str):
    assert profile.limited_by.endswith(expected)
    assert expected in profile.sentence


def test_shares_are_of_the_whole_time():
    profile = profiled(products=(0.5, 1), other=(0.25, 1), data=(0.05, 1))
    assert profile.share("gaps") == pytest.approx(0.2)
    assert re.findall(r"[\d.]+%", profile.sentence) == ["50%", "25%", "5.0%", "20%"]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("aten::mm", "products"),
        ("aten::addmm", "products"),
        ("aten::bmm", "products"),
        ("aten::_scaled_dot_product_flash_attention_for_cpu_backward", "products"),
        ("aten::mul", "other operations"),
        ("aten::_fused_adamw_", "other operations"),
        ("aten::index", "data"),
        ("Memcpy HtoD (Pinned -> Device)", "data"),
        ("Memcpy DtoD (Device -> Device)", "other operations"),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64", "products"),
        ("nvjet_tst_128x256_64x4_2x1_v_bz_coopA_NNT", "products"),
        ("void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16>", "products"),
        ("void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits>", "products"),
        ("triton_poi_fused_add_native_layer_norm_3", "other operations"),
        ("void at::native::vectorized_elementwise_kernel<4>", "other operations"),
    ],
)
def test_kind_follows_from_the_name_of_an_operation(name: str, kind: Kind):
    assert kind_of(name) == kind
