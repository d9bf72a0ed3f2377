"""`python -m stages NAME` runs the code beside it, or says in one sentence why it cannot."""

import importlib
import marshal
import os
import py_compile
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import stages.__main__ as runner
from tests.imports import ROOT
from tokenmill import stage

ORDER = """
import gc, sys
from tokenmill import process, stage
import stages.__main__ as runner
process.set_allocators = lambda: print("allocators, torch is loaded:", "torch" in sys.modules)
stage.run_stage = lambda main: print(
    "stage, torch is loaded:", "torch" in sys.modules,
    "looks at all objects:", gc.get_stats()[-1]["collections"],
)
sys.argv = ["stages", "train"]
runner.main()
"""


def run(
    *arguments: str, cwd: Path, library: Path = ROOT / "src"
) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": f"{library}{os.pathsep}{cwd}"}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_end_no_command(closed: str, tmp_path: Path):
    shutil.copy(ROOT / "params.yaml", tmp_path)
    command = f'"{sys.executable}" -m tokenmill params {closed}'
    done = subprocess.run(
        ["sh", "-c", command],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such terminals")
@pytest.mark.parametrize("kind", ["terminal", "pipe"])
def test_a_stage_outlives_those_who_read_what_it_prints(kind: str, tmp_path: Path):
    here, there = os.openpty() if kind == "terminal" else os.pipe()
    os.close(here)
    code = """
import sys
from pathlib import Path
from tokenmill.display import say
from tokenmill.stage import run_stage
run_stage(lambda: [say("at work", out=sys.stderr), say("at work"), Path("done").touch()])
"""
    stage = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        stdout=there,
        stderr=there,
        check=False,
    )
    os.close(there)
    assert (stage.returncode, (tmp_path / "done").exists()) == (0, True)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows keeps its own streams")
def test_pythonunbuffered_holds_in_a_stage():
    code = """
import os, sys
from tokenmill.stage import run_stage
run_stage(lambda: [print("1", file=sys.stderr), print("2"), os.write(1, b"3")])
"""
    done = subprocess.run(
        [sys.executable, "-u", "-c", code],
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=True,
    )
    assert done.stdout.split() == [b"1", b"2", b"3"]


def test_impossible_number_of_threads_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    for value in ("0", "x", ""):
        monkeypatch.setenv("POLARS_MAX_THREADS", value)
        with pytest.raises(SystemExit, match="POLARS_MAX_THREADS"):
            stage.report_errors(lambda: print("at work"))
    assert capsys.readouterr().out == ""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere names are always UTF-8")
def test_a_name_that_the_locale_lacks_is_one_sentence(tmp_path: Path):
    name = str(tmp_path / "gr\u00f6\u00dfe")
    code = f"from tokenmill.stage import report_errors\nreport_errors(lambda: open({name!a}))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": str(ROOT / "src"), "LC_ALL": "POSIX", "PYTHONUTF8": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: {tmp_path}/gr??e")
    assert "PYTHONUTF8=1" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("locale", "codec"), [("iso8859-1", "latin-1"), ("koi8-r", "charmap"), ("ascii", "ascii")]
)
def test_a_codec_may_have_another_name_than_the_locale(
    monkeypatch: pytest.MonkeyPatch, locale: str, codec: str
):
    def open_file() -> None:
        raise UnicodeEncodeError(codec, "日", 0, 1, "it has no such letter")

    monkeypatch.setattr(sys, "getfilesystemencoding", lambda: locale)
    with pytest.raises(SystemExit, match=f"日.*{locale}.*PYTHONUTF8=1"):
        stage.report_errors(open_file)


def copy_code(target: Path) -> None:
    """With Python's byte code, so that nothing is compiled again, and without what another process
    is just writing of it."""
    for folder in ("src", "stages"):
        unfinished = shutil.ignore_patterns("*.pyc.*")
        shutil.copytree(ROOT / folder, target / folder, ignore=unfinished)


def test_code_beside_the_stage_is_the_code_that_runs(tmp_path: Path):
    copy_code(tmp_path)
    (tmp_path / "src/tokenmill/stage.py").write_text(
        "def run_stage(main):\n    print('the copy')\n"
    )
    assert run("-m", "stages", "unpack", cwd=tmp_path).stdout == "the copy\n"


def test_files_of_the_project_do_not_stand_for_modules_of_python(tmp_path: Path):
    for folder in ("src", "stages"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    shutil.copy(ROOT / "params.yaml", tmp_path)
    for name in ("random", "json", "typing", "numpy", "pydantic"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('another module of this name')")
    done = subprocess.run(
        [sys.executable, "-m", "stages", "check"],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_missing_package_is_one_sentence(tmp_path: Path):
    done = run("-S", "-m", "stages", "clean", cwd=tmp_path, library=ROOT)
    assert done.returncode == 1
    assert "activate the environment first" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_package_missing_later_is_one_sentence(monkeypatch: pytest.MonkeyPatch):
    """As after an update of the project in an environment that is still the old one."""
    monkeypatch.setitem(sys.modules, "ijson", None)
    with pytest.raises(SystemExit, match=r"lacks ijson; .*make repro"):
        stage.report_errors(lambda: print(importlib.import_module("ijson")))
    with pytest.raises(ModuleNotFoundError):
        stage.report_errors(lambda: print(importlib.import_module("tokenmill.nothing")))


def test_cut_byte_code_is_removed_and_the_stage_runs(tmp_path: Path):
    """Of the project and of its packages, of which the environment's would take seconds."""
    copy_code(tmp_path)
    packages = tmp_path / "packages"
    packages.mkdir()
    (packages / "package.py").touch()
    sources = (tmp_path / "src/tokenmill/core/paths.py", packages / "package.py")
    cut = [Path(py_compile.compile(str(source), doraise=True) or "") for source in sources]
    for path in cut:
        path.write_bytes(path.read_bytes()[:40])
    code = f"""
import runpy, sys, sysconfig
path_of = sysconfig.get_path
sysconfig.get_path = lambda name: {str(packages)!r} if name == "purelib" else path_of(name)
sys.argv = ["stages", "sample"]
runpy.run_module("stages", run_name="__main__", alter_sys=True)
"""
    done = run("-c", code, cwd=tmp_path, library=tmp_path / "src")
    assert "marshal" not in done.stderr
    assert "params.yaml is missing" in done.stderr, "as without any damage"
    for path in cut:
        assert not path.exists() or marshal.loads(path.read_bytes()[16:])  # noqa: S302 (written anew)


@pytest.mark.parametrize("version", [(3, 10, 1), (3, 15, 0)])
def test_other_pythons_are_refused(version: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "version_info", version)
    with pytest.raises(SystemExit, match=r"needs Python 3\.11 to 3\.14"):
        runner.main()


@pytest.mark.parametrize("arguments", [[], ["clear"], ["clean", "train"], ["__main__"]])
def test_unknown_stage_lists_the_stages(arguments: list[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "argv", ["stages", *arguments])
    with pytest.raises(SystemExit) as error:
        runner.main()
    run = re.findall(r"cmd: python -m stages (\w+)", (ROOT / "dvc.yaml").read_text("utf-8"))
    assert str(error.value).partition("NAME is one of ")[2] == ", ".join(sorted(run))


def test_a_dot_instead_of_a_space_is_refused(tmp_path: Path):
    done = run("-m", "stages.clean", cwd=tmp_path, library=ROOT)
    assert done.returncode == 1
    assert "`python -m stages clean`" in done.stderr


def test_allocators_are_told_before_pytorch_is_loaded(tmp_path: Path):
    shown = run(
        "-c", ORDER, cwd=tmp_path, library=Path(f"{ROOT / 'src'}{os.pathsep}{ROOT}")
    ).stdout.splitlines()
    assert shown == [
        "allocators, torch is loaded: False",
        "stage, torch is loaded: True looks at all objects: 0",
    ]


@pytest.mark.parametrize("loaded", ["triton", "another"])
def test_a_process_that_loaded_triton_ends_without_leaks(loaded: str):
    """Triton (3.9) prints what is left of its objects when Python ends."""
    program = """
import sys
from types import ModuleType
from tokenmill.stage import report_errors

class Leaked:
    def __del__(self):
        print("freed")

def work():
    sys.modules[sys.argv[1]] = ModuleType(sys.argv[1])
    one = Leaked()
    one.cycle = one

report_errors(work)
"""
    done = subprocess.run(
        [sys.executable, "-c", program, loaded], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["freed"] * (loaded == "triton")
