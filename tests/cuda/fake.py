"""Loads the shim in fake_cuda.cpp, in a process of its own and before torch is imported.

With it a PyTorch without CUDA can trace a program on that device: fake tensors have a shape and a
device, but no values.
"""

import ctypes
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.imports import ROOT

SOURCE = Path(__file__).with_name("fake_cuda.cpp")
COMPILER = shutil.which("g++")


def load(folder: Path) -> None:
    """Compile the shim into a folder, unless it is there, and load it; torch is found, but not
    imported yet."""
    spec = importlib.util.find_spec("torch")
    assert spec is not None
    assert spec.origin is not None
    torch = Path(spec.origin).parent
    library = folder / "fake_cuda.so"
    paths = [f"-I{torch / 'include'}", f"-L{torch / 'lib'}", f"-Wl,-rpath,{torch / 'lib'}"]
    options = ["-std=c++20", "-O0", "-w", "-shared", "-fPIC", *paths, "-o", library]
    libraries = ["-Wl,--no-as-needed", "-lc10", "-ltorch_cpu"]
    if (torch / "lib/libtorch_cuda.so").exists():
        # What it registers is then registered before, and replaced
        libraries.append("-ltorch_cuda")
    if not library.exists():
        subprocess.run([COMPILER or "g++", SOURCE, *options, *libraries], check=True)
    ctypes.CDLL(str(library), mode=os.RTLD_GLOBAL)


def printed(*arguments: str, **variables: str) -> list[Any]:
    """The JSON in each line that `python ARGUMENTS` prints."""
    path = f"{ROOT / 'src'}{os.pathsep}{ROOT}"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": path} | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]
