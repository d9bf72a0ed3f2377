"""Choosing a device and a precision changes nothing; configuring a process does."""

from pathlib import Path

import pytest
import torch

from tokenmill.core.errors import UserError
from tokenmill.model import device as module
from tokenmill.model.device import (
    Compute,
    choose_compute,
    configure_process,
    is_out_of_memory,
    prepare_to_measure,
)

CPU = torch.device("cpu")


@pytest.mark.parametrize("precision", ["auto", "float32", "bfloat16"])
def test_choosing_changes_nothing_in_the_process(precision: str):
    torch.set_float32_matmul_precision("high")
    choose_compute("cpu", precision)
    assert torch.get_float32_matmul_precision() == "high"


@pytest.mark.parametrize(("precision", "tiles", "expected"), [
    ("auto", False, "medium"),
    ("auto", True, "medium"),
    ("float32", False, "medium"),
    ("float32", True, "highest"),
])  # fmt: skip
def test_float32_by_name_is_exact_where_products_would_round(
    precision: str, tiles: bool, expected: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"amx_bf16": tiles})
    configure_process(choose_compute("cpu", precision))
    assert torch.get_float32_matmul_precision() == expected


@pytest.mark.parametrize(
    ("own", "variable", "expected"),
    [(1, None, 1), (3, None, 3), (8, None, None), (16, None, None), (3, "8", None)],
)
def test_threads_keep_to_a_quota_unless_the_user_says_otherwise(
    own: int, variable: str | None, expected: int | None, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if variable:
        monkeypatch.setenv("OMP_NUM_THREADS", variable)
    told: list[int] = []
    monkeypatch.setattr(module, "own_cores", lambda: own)
    monkeypatch.setattr(module, "adapt_wait_policy", lambda: None)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 8)
    monkeypatch.setattr(torch, "set_num_threads", told.append)
    configure_process(choose_compute("cpu", "auto"))
    assert told == ([expected] if expected else [])


@pytest.mark.parametrize(("exact", "expected"), [(True, "highest"), (False, "high")])
def test_a_gpu_uses_tf32_unless_float32_is_asked_for(exact: bool, expected: str):
    configure_process(Compute(torch.device("cuda"), torch.float32, exact_float32=exact))
    assert torch.get_float32_matmul_precision() == expected


@pytest.mark.parametrize(
    ("capability", "expected"), [(None, torch.float32), ("avx512_bf16", torch.bfloat16)]
)
def test_auto_is_bfloat16_where_the_cpu_multiplies_it(
    capability: str | None, expected: torch.dtype, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(
        torch.cpu, "get_capabilities", lambda: {capability: True} if capability else {}
    )
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: True)
    assert choose_compute("cpu", "auto").precision == expected


def test_auto_is_float32_where_onednn_may_not_multiply_bfloat16(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True})
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: False)
    assert choose_compute("cpu", "auto").precision == torch.float32


@pytest.mark.parametrize(
    ("precision", "has", "emulated", "products"),
    [
        ("auto", False, False, "medium"),
        ("float32", False, False, "medium"),
        ("float32", True, False, "highest"),
        ("bfloat16", False, True, "medium"),
        ("bfloat16", True, False, "medium"),
        ("float16", False, True, "medium"),
        ("float16", True, False, "medium"),
    ],
)
def test_a_model_is_measured_in_a_precision_of_the_cpu(
    precision: str, has: bool, emulated: bool, products: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"amx_bf16": has})
    for name in ("_is_mkldnn_bf16_supported", "_is_mkldnn_fp16_supported"):
        monkeypatch.setattr(torch.ops.mkldnn, name, lambda: has)
    trained = choose_compute("cpu", precision)
    assert trained.emulates_precision == emulated
    torch.set_float32_matmul_precision("high")
    measured = prepare_to_measure("cpu", precision)
    assert measured.precision == (torch.float32 if emulated else trained.precision)
    assert torch.get_float32_matmul_precision() == products, "of the whole process"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_device_that_is_not_there_is_refused():
    with pytest.raises(UserError, match=r"runtime\.device \(cuda\)"):
        choose_compute("cuda", "auto")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."), True),
        (
            RuntimeError(
                "[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory: "
                "you tried"
            ),
            True,
        ),
        (
            RuntimeError(
                "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"
            ),
            True,
        ),
        (RuntimeError("could not create a primitive"), True),
        (RuntimeError("MPS backend out of memory (MPS allocated: 8 GB)"), True),
        (MemoryError(), True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_errors_that_mean_memory_ran_out(error: Exception, expected: bool):
    assert is_out_of_memory(error) is expected


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An NVIDIA GPU whose driver's version is in the file, and a torch that does not see it."""
    (tmp_path / "nvidia0").touch()
    monkeypatch.setattr(module, "NVIDIA_DEVICES", tmp_path)
    monkeypatch.setattr(module, "NVIDIA_DRIVER", tmp_path / "version")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    release = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.14  Thu Feb 22 2024\n"
    (tmp_path / "version").write_text(release + "GCC version:  gcc version 12.2.0\n")
    return tmp_path / "version"


@pytest.mark.parametrize(
    ("cuda", "named"),
    [
        ("13.0", ["550.54.14", "13.0", "580", "older CUDA"]),
        ("12.8", ["550.54.14", "12.8", "nvidia-smi"]),
        (None, ["550.54.14", "CPUs"]),
    ],
)
def test_auto_refuses_the_cpu_beside_a_gpu(
    cuda: str | None, named: list[str], driver: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(torch.version, "cuda", cuda)
    with pytest.raises(UserError, match="auto") as refused:
        choose_compute("auto", "auto")
    for part in [*named, torch.__version__, "set runtime.device to cpu"]:
        assert part in str(refused.value)
    assert choose_compute("cpu", "auto").device == CPU, "the way out"


def test_auto_takes_the_cpu_where_no_gpu_can_be_meant(
    driver: Path, monkeypatch: pytest.MonkeyPatch
):
    with monkeypatch.context() as hidden:
        hidden.setenv("CUDA_VISIBLE_DEVICES", "")
        assert choose_compute("auto", "auto").device == CPU
    (driver.parent / "nvidia0").unlink()  # a container that was given no GPU
    assert choose_compute("auto", "auto").device == CPU
