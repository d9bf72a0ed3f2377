"""Training that starts from an imported model: DVC knows the dependency, and without one nothing
runs again."""

import json

import pytest

from tests.pipeline.project import Project, ran
from tokenmill.core.files import sha256_of

pytestmark = pytest.mark.slow

START = "models/start/epoch-1"


def test_imported_model_is_a_dependency(finished: Project) -> None:
    said = finished.run("python", "-m", "tokenmill", "import", "--epoch", "1")
    assert f"-S model.start_from={START}" in said
    finished.commit()
    assert not ran(finished.repro())  # nobody starts from it yet
    asked = ("-S", f"model.start_from={START}")
    finished.run("dvc", "exp", "run", "--temp", "-n", "on", *asked, "train")
    finished.set(model__start_from=START)
    # The experiment's are in the cache
    assert not {"clean", "tokenize", "train"} & set(ran(finished.repro("train")))
    manifest = json.loads((finished.root / "models/gpt/manifest.json").read_bytes())
    assert manifest["start_sha256"] == sha256_of(finished.root / START / "model.safetensors")
    finished.commit()
    finished.run("dvc", "push", "-q")
    clone = finished.clone("clone")
    clone.run("dvc", "pull", "-q")
    assert clone.digest(START) == finished.digest(START)
    assert set(ran(clone.repro("train"))) <= {"check", "unpack"}
    clone.set(model__n_layer=2)
    assert "model.n_layer (2) must be 1" in clone.run("dvc", "repro", check=False)
