"""Which repository a stage or command works on: that in which it runs."""

from pathlib import Path

import pytest
import yaml

from tokenmill.core import paths
from tokenmill.core.errors import UserError

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("copy", ["standalone/tmp1", "tmp1", "standalone/tmp1/below"])
def test_a_copy_belongs_to_the_repository_above_it(
    copy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if that repository is itself in such a copy."""
    for root in (tmp_path / "main", tmp_path / "main/.dvc/tmp/exps/tmp2/main"):
        here = root / ".dvc/tmp/exps" / copy
        here.mkdir(parents=True)
        monkeypatch.chdir(here)
        assert paths.main_root() == root
        assert paths.resume_root() == root / ".resume"


def test_the_environment_names_no_other_repository(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DVC_ROOT", str(here / "other"))
    assert paths.resume_root() == Path(".resume")


def test_what_lies_elsewhere_may_be_of_another_version(tmp_path: Path) -> None:
    assert "TokenMill wrote it" in paths.way_out(tmp_path / "config.json")
    assert paths.way_out(Path("models/gpt/config.json")) == paths.DEEP


def test_folders_of_stages_are_those_of_dvc_yaml() -> None:
    stages = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"].values()
    outs = [out for stage in stages for out in stage.get("do", stage).get("outs", [])]
    names = [next(iter(out)) if isinstance(out, dict) else out for out in outs]
    assert set(paths.OUTPUTS) == {Path(name) for name in names if not Path(name).suffix}


@pytest.mark.parametrize(
    "target", ["models/gpt", "models/gpt/a/b", "models/../data/tokens/a", "link/a"]
)
def test_nothing_is_written_into_a_stage_s_folder(target: str, tmp_path: Path) -> None:
    (tmp_path / "models/gpt").mkdir(parents=True)
    (tmp_path / "link").symlink_to("models/gpt")
    with pytest.raises(UserError, match=r"models/gpt|data/tokens"):
        paths.refuse_output(tmp_path / target, tmp_path)
    for other in ("models/mine", "models/gpt2", "exports/gpt"):
        paths.refuse_output(tmp_path / other, tmp_path)


def test_an_output_is_refused_wherever_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What leads nowhere is none, and its reader says so."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "link").symlink_to("data")
    for place in ("data/clean/x", "link/clean"):
        with pytest.raises(UserError, match="lies in data/clean"):
            paths.refuse_output(Path(place))
    for place in ("loop", "loop/x", "~nobody-of-this-name/x", "elsewhere"):
        paths.refuse_output(Path(place))
        assert paths.real_path(place) == tmp_path / place
