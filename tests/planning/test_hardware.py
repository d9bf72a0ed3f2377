"""A device's peak is known only if the table has that very device."""

import pytest
import torch

from tokenmill.planning.hardware import HARDWARE, hardware_of, peak_flops


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
def test_only_a_device_in_the_table_has_a_peak(name: str, expected: str | None):
    found = hardware_of(name)
    assert (found.name if found else None) == expected


def test_a_cpu_has_no_known_peak():
    assert peak_flops(torch.device("cpu")) is None


def test_every_device_is_in_the_table_once():
    assert len({entry.name for entry in HARDWARE}) == len(HARDWARE)
