"""What allocators keep of memory that is free, unless the user says otherwise."""

import os
import subprocess
import sys
from unittest import mock

import pytest

from tokenmill import process


@pytest.mark.skipif(sys.platform != "linux", reason="only there can PyTorch's segments grow")
@pytest.mark.parametrize("name", ["PYTORCH_ALLOC_CONF", "_RJEM_MALLOC_CONF"])
def test_allocators_give_back_unless_the_user_says_otherwise(
    name: str, monkeypatch: pytest.MonkeyPatch
):
    names = {"PYTORCH_ALLOC_CONF", "_RJEM_MALLOC_CONF"}
    monkeypatch.setattr(os, "environ", given := {name: "own"})
    process.set_allocators()
    assert given.keys() == names
    assert [one for one in names if given[one] == "own"] == [name]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere polars has another allocator")
def test_polars_understands_what_its_allocator_is_told():
    told: dict[str, str] = {}
    with mock.patch.object(os, "environ", told):
        process.set_allocators()
    strict = {"_RJEM_MALLOC_CONF": f"abort_conf:true,{told['_RJEM_MALLOC_CONF']}"}
    subprocess.run(
        [sys.executable, "-c", "import polars"], env=os.environ | strict, check=True, timeout=60
    )
