"""`tokenmill export --push`, against a stand-in of the hub: what arrives there, and what each
refusal says."""

import time
from collections.abc import Iterator
from pathlib import Path

import huggingface_hub.constants
import pytest

from tests.runs.hub import TOKEN, Hub, running
from tests.runs.test_export import NOTHING, checkpoint_in
from tokenmill.cli.export import complete_card, license_of
from tokenmill.cli.main import main
from tokenmill.core.errors import UserError
from tokenmill.core.files import sha256_of
from tokenmill.runs.export import export, is_export_of

NAME = "ada/speeches"


@pytest.fixture
def hub(here: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub that answers, a model to push, and a token."""
    checkpoint_in(here, "modern", "bpe")
    monkeypatch.setattr(time, "sleep", lambda _: None)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_TOKEN_PATH", str(here / "token"))
    monkeypatch.setenv("HF_XET_CACHE", str(here / "xet"))
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    with running(Hub()) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        yield hub


def push(*options: str) -> None:
    main(
        [
            "export",
            "--model",
            "epoch-2",
            "--tokenizer",
            "tokenizer.json",
            "out",
            "--push",
            NAME,
            *options,
        ]
    )


def refusal(*options: str) -> str:
    """How a push that ends with an error ends."""
    with pytest.raises(SystemExit) as stopped:
        push(*options)
    return str(stopped.value)


def exported() -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Path("out").iterdir()}


def test_what_arrives_is_what_was_exported(hub: Hub, capsys: pytest.CaptureFixture[str]):
    push("--license", "mit")
    assert hub.files == {NAME: exported()}
    assert hub.private == {NAME: True}
    assert b"\nlicense: mit\n" in hub.files[NAME]["README.md"]
    assert f'pipeline("text-generation", "{NAME}")'.encode() in hub.files[NAME]["README.md"]
    printed = capsys.readouterr()
    assert f"{hub.url}/{NAME}: pushed, private" in printed.out
    assert TOKEN not in printed.out + printed.err


def test_weights_arrive_by_xet(hub: Hub, monkeypatch: pytest.MonkeyPatch):
    """Which today's hub prefers to Git LFS: chunks go to a store of their own, the commit names the
    file's SHA-256."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_XET", False)
    push()
    weights = Path("out/model.safetensors")
    assert hub.files == {NAME: exported() | {weights.name: sha256_of(weights).encode()}}
    assert sum(map(len, hub.stored.values())) > 0.8 * weights.stat().st_size


def test_a_second_push_keeps_the_edited_card(hub: Hub):
    push()
    Path("out/README.md").write_text(Path("out/README.md").read_text() + "\nMine.\n")
    push()
    assert hub.files[NAME]["README.md"].endswith(b"\nMine.\n")
    assert sum("/stored/" in request for request in hub.requests) == 1, (
        "what the hub has is not sent again"
    )


def test_the_card_names_the_repository_of_the_last_push(tmp_path: Path):
    export(checkpoint_in(tmp_path, "speedrun", "bpe"), NOTHING, tmp_path / "out")
    card = tmp_path / "out/README.md"
    for name in ("ada/speeches", "eve/speeches"):
        complete_card(card, repository=name)
        example = f'pipeline("text-generation", "{name}", trust_remote_code=True)'
        assert example in card.read_text()


def test_nothing_but_the_export_is_pushed(hub: Hub, capsys: pytest.CaptureFixture[str]):
    push()
    expected = exported()
    Path("secret").write_text("SECRET")
    Path("out/.env").write_text("SECRET")
    Path("out/notes").mkdir()
    Path("out/notes/a.txt").write_text("SECRET")
    Path("out/id_rsa").symlink_to(Path("secret").resolve())
    hub.files.clear()
    push()
    assert hub.files == {NAME: expected}
    assert ".env, id_rsa, notes" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["README.md", "model.safetensors", "tokenizer_config.json"])
def test_a_link_in_place_of_a_file_is_not_followed(name: str, hub: Hub):
    push()
    elsewhere = Path("elsewhere")
    Path("out", name).replace(elsewhere)
    Path("out", name).symlink_to(elsewhere.resolve())
    before = elsewhere.read_bytes()
    hub.requests.clear()
    assert name in refusal("--license", "mit")
    assert not hub.requests
    assert elsewhere.read_bytes() == before


@pytest.mark.parametrize(
    "place", ["/repos/create", "/preupload/", "/batch", "/stored/", "/commit/"]
)
def test_a_push_cut_off_and_typed_again_succeeds(place: str, hub: Hub):
    hub.cut_off = place
    assert f"{NAME} was not pushed" in refusal()
    assert not hub.files
    hub.cut_off = None
    push()
    assert hub.files == {NAME: exported()}


@pytest.mark.parametrize(
    ("place", "status", "sentence"),
    [
        ("/repos/create", 403, f"may not write {NAME}"),
        ("/preupload/", 403, f"may not write {NAME}"),
        ("/commit/", 401, "does not accept the token"),
        ("/commit/", 413, "(413): too"),
        ("/repos/create", 200, "HF_ENDPOINT"),
        ("/preupload/", 200, "HF_ENDPOINT"),
    ],
)
def test_refusals_are_sentences(place: str, status: int, sentence: str, hub: Hub):
    hub.refuse[place] = (status, "too large")
    if place == "/repos/create":
        hub.refuse[f"/api/models/{NAME}"] = (404, "Repository not found")
    assert sentence in refusal()
    assert not hub.files


def test_a_file_that_the_hub_ignores_is_named(hub: Hub):
    hub.ignored = ("model.safetensors",)
    assert "model.safetensors" in refusal()
    assert "config.json" in hub.files[NAME]


def test_a_wrong_token_is_not_printed(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("HF_TOKEN", "hf_of_nobody")
    said = refusal()
    assert "does not accept the token" in said
    assert "hf_of_nobody" not in said + "".join(capsys.readouterr())


def test_nobody_answers(hub: Hub, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert f"{NAME} was not pushed" in refusal()


def test_a_hub_that_is_no_address_is_refused(hub: Hub, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://hub:x")
    assert refusal().startswith("error: HF_ENDPOINT")
    assert not Path("out").exists()


def test_a_token_that_login_saved_is_taken(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("HF_TOKEN")
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    push()
    assert hub.files == {NAME: exported()}


@pytest.mark.parametrize("token", ["", "hf of ada", "hf_\x1b[2J"])
def test_without_a_token_nothing_is_written(token: str, hub: Hub, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HF_TOKEN", token)
    assert refusal()
    assert not Path("out").exists()
    assert not hub.requests


@pytest.mark.parametrize(
    "name", ["speeches", "ada/", "ada/../eve", "a/b/c", "ada/-x", "ada/sp eeches", ""]
)
def test_malformed_names_are_refused(name: str, hub: Hub):
    with pytest.raises(SystemExit):
        main(
            [
                "export",
                "--model",
                "epoch-2",
                "--tokenizer",
                "tokenizer.json",
                "out",
                f"--push={name}",
            ]
        )
    assert not hub.requests


def test_public_needs_a_licence(hub: Hub):
    assert "names no licence" in refusal("--public")
    assert not hub.requests
    push("--public", "--license", "apache-2.0")
    assert hub.private == {NAME: False}
    assert hub.files == {NAME: exported()}


def test_a_public_repository_is_not_taken_for_private(hub: Hub):
    hub.private[NAME] = False
    assert refusal()
    assert not hub.files


def test_a_folder_of_another_model_is_not_pushed(tmp_path: Path, hub: Hub):
    other = checkpoint_in(tmp_path / "other", "gpt2", "bpe")
    export(other, NOTHING, Path("out"))
    assert refusal()
    assert not hub.requests


def test_a_damaged_export_is_not_taken_for_whole(tmp_path: Path):
    checkpoint = checkpoint_in(tmp_path, "modern", "bpe")
    export(checkpoint, NOTHING, tmp_path / "out")
    assert is_export_of(checkpoint, tmp_path / "out", "hf")
    assert not is_export_of(checkpoint, tmp_path / "out", "onnx")
    weights = tmp_path / "out/model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    assert not is_export_of(checkpoint, tmp_path / "out", "hf")


def test_licence_of_the_card(tmp_path: Path):
    export(checkpoint_in(tmp_path, "modern", "bpe"), NOTHING, tmp_path / "out")
    card = tmp_path / "out/README.md"
    assert license_of(card) is None
    complete_card(card, "cc-by-4.0")
    assert license_of(card) == "cc-by-4.0"
    card.write_bytes("Müller".encode("latin-1"))
    with pytest.raises(UserError, match=r"README\.md is not UTF-8 text"):
        complete_card(card, "mit")
    card.write_text("---\nlicense: [\n---\n")
    with pytest.raises(UserError, match="no YAML"):
        license_of(card)
