"""What `tokenmill import` says before it reads a model."""

from pathlib import Path

import pytest

from tokenmill.cli.main import main


@pytest.mark.parametrize("name", ["openai-community/gpt2", "hf://openai-community/gpt2"])
def test_a_name_on_the_hub_is_told_how_to_come_here(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    Path(".dvc").mkdir()
    with pytest.raises(SystemExit, match="hf download"):
        main(["import", name])
