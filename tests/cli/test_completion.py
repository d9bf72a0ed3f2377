"""`tokenmill completion`: the shells themselves take the scripts, and bash completes."""

import shutil
import subprocess
from shlex import quote

import pytest

from tokenmill.cli.completion import SHELLS
from tokenmill.cli.main import main

ASK = """
source {script}
COMP_WORDS=({words} "{typed}")
COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 ))
COMP_LINE="${{COMP_WORDS[*]}}"
COMP_POINT=${{#COMP_LINE}}
function=$(complete -p tokenmill | sed 's/.*-F \\([^ ]*\\).*/\\1/')
$function tokenmill "{typed}" "${{COMP_WORDS[COMP_CWORD-1]}}"
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture
def scripts(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    found = {}
    for shell in SHELLS:
        main(["completion", shell])
        found[shell] = capsys.readouterr().out
    return found


@pytest.mark.parametrize(
    ("words", "typed", "offered"),
    [
        (
            "tokenmill",
            "",
            {"summary", "params", "preset", "plan", "profile", "doctor", "completion"},
        ),
        ("tokenmill", "pr", {"preset", "profile"}),
        ("tokenmill plan", "--pr", {"--preset", "--price-per-hour"}),
        ("tokenmill preset", "ph", {"phase1", "phase2", "phase3"}),
        ("tokenmill plan --preset", "g", {"gpt2-medium"}),
        ("tokenmill completion", "z", {"zsh"}),
        ("tokenmill params --write", "par", {"params.yaml"}),
    ],
)
def test_bash_completes(
    scripts: dict[str, str], words: str, typed: str, offered: set[str], tmp_path
):
    (tmp_path / "params.yaml").touch()
    (tmp_path / "script").write_text(scripts["bash"])
    asked = ASK.format(script=quote(str(tmp_path / "script")), words=words, typed=typed)
    done = subprocess.run(
        ["bash", "-c", asked], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    found = {line.strip() for line in done.stdout.splitlines() if line}
    assert offered <= found if typed == "" else offered == found


@pytest.mark.parametrize("shell", SHELLS)
def test_the_shell_takes_its_script(shell: str, scripts: dict[str, str], tmp_path):
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not here; `apt install {shell}` brings it")
    (tmp_path / "script").write_text(scripts[shell])
    subprocess.run([shell, "-n", tmp_path / "script"], check=True)


def test_each_shell_gets_its_own(scripts: dict[str, str]):
    assert scripts["zsh"].startswith("#compdef tokenmill")
    assert "complete tokenmill" in scripts["tcsh"]
    assert all("step-seconds" in script for script in scripts.values())
