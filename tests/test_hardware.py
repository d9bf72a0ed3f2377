"""The table of GPUs."""

import pytest
import torch

from tokenmill.hardware import HARDWARE, peak_flops


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Tesla T4", "T4"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA L40S", None),
        ("NVIDIA A100-SXM4-40GB", "A100"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA GeForce RTX 4090", "RTX4090"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", None),
        ("NVIDIA GeForce RTX 3090 Ti", None),
    ],
)
def test_only_a_device_in_the_table_has_a_peak(
    name: str, expected: str | None, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: name)
    peaks = {gpu.name: gpu.flops for gpu in HARDWARE}
    assert len(peaks) == len(HARDWARE)
    assert peak_flops(torch.device("cuda")) == (peaks[expected] if expected else None)
    assert peak_flops(torch.device("cpu")) is None
