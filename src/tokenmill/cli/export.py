"""`tokenmill export`: a trained model as a folder for `transformers`, llama.cpp or ONNX, or on the
Hugging Face Hub.

The hub's own client uploads (`huggingface_hub`, which `tokenizers` brings along). It takes the
token from where `hf auth login` saves it or from HF_TOKEN, and the address of another hub from
HF_ENDPOINT. It gets the files that `export` writes, by their names, and nothing else that lies in
the folder. All files arrive in one commit, so an interrupted push leaves nothing incomplete, and
what has arrived by then is not sent again.
"""

import argparse
import re
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from tokenmill.cli.fetch import hub
from tokenmill.cli.generate import add_model_arguments, model_of
from tokenmill.cli.main import Parser
from tokenmill.core.errors import UserError
from tokenmill.core.files import read_bytes, utf8_text, write_text
from tokenmill.display import note, say

if TYPE_CHECKING:
    from huggingface_hub import HfApi

LICENSE = re.compile(r"[a-z0-9][a-z0-9.-]{0,63}")
LICENSE_LINE = re.compile(r"(?m)^(?:# .*\n)?license:.*$")
"""Matches the line of the card with the licence, and the comment above it."""

LOADED_FROM = re.compile(r'(pipeline\("text-generation", )[^,)\n]*')
"""Matches the card's example up to the place from which it loads the model."""

EXAMPLES = """\
  tokenmill export                                  the last epoch, to exports/epoch-4
  tokenmill export --epoch 2 my-model               another epoch, to my-model
  tokenmill export --rev wroth-code                 the model of an experiment or commit
  tokenmill export --model FOLDER --tokenizer FILE  a model in a folder
  tokenmill export --format gguf                    for llama.cpp, to exports/epoch-4-gguf
  tokenmill export --push ada/speeches              to the Hugging Face Hub, where only you see it
  tokenmill export --push ada/speeches --public --license apache-2.0
"""


def add_arguments(parser: Parser) -> None:
    """Declare the folder and the model."""
    parser.add_argument(
        "folder",
        nargs="?",
        type=Path,
        metavar="FOLDER",
        help="a new folder (default: below exports)",
    )
    parser.add_argument(
        "--format",
        choices=("hf", "gguf", "onnx"),
        default="hf",
        help=(
            "hf: for transformers (default); gguf: for llama.cpp, architecture gpt2 only; "
            "onnx: for onnxruntime"
        ),
    )
    add_model_arguments(parser)
    parser.add_argument(
        "--license", metavar="NAME", help="on the card, as the hub names it: apache-2.0, mit, …"
    )
    parser.add_argument(
        "--push", metavar="OWNER/NAME", help="upload it to this repository of the Hugging Face Hub"
    )
    parser.add_argument(
        "--public", action="store_true", help="let everybody see what --push uploads"
    )


def run(options: argparse.Namespace) -> None:
    """Find the model, write its folder, and upload it if asked. A folder that already holds this
    model is uploaded as it is."""
    from tokenmill.runs.export import CARD, export, files_of, is_export_of, record_of

    if options.public and options.push is None:
        raise UserError("--public is for --push OWNER/NAME.")
    if options.license and not LICENSE.fullmatch(options.license):
        raise UserError(
            f"--license {options.license!r} is no licence of the hub; take one such as "
            "apache-2.0, mit or other."
        )
    hub()  # before its client is imported, which asserts that HF_ENDPOINT is an address
    api = None if options.push is None else client(options.push)
    checkpoint = model_of(options)
    name = re.sub(r"[^\w.-]+", "-", checkpoint.name).strip("-.")
    if options.format != "hf":
        name = f"{name}-{options.format}"
    target = options.folder or Path("exports") / name
    card = target / CARD
    if not (api and is_export_of(checkpoint, target, options.format)):
        export(checkpoint, record_of(checkpoint, Path()), target, options.format)
    complete_card(card, options.license, options.push)
    say(f"{checkpoint.name}: {target}")
    if not license_of(card):
        if options.public:
            raise UserError(
                f"{card} names no licence; add --license apache-2.0 or another, or write it there."
            )
        say(f"fill in the licence in {card} before you publish it")
    if api and options.push:
        names = files_of(target, options.format)
        others = sorted(path.name for path in target.iterdir() if path.name not in names)
        address = push(api, target, names, options.push, public=options.public)
        if others:
            say(f"not pushed, as export did not write it: {', '.join(others)}")
        seen_by = "public" if options.public else "private; --public is for everybody"
        say(f"{address}: pushed, {seen_by}")


def license_of(card: Path) -> str | None:
    """The licence that the card names; None if it names none.

    Raises:
        UserError: what stands above the card's text is no YAML.
    """
    import yaml
    from huggingface_hub import metadata_load

    try:
        name = (metadata_load(card) or {}).get("license")
    except (ValueError, yaml.YAMLError):
        raise UserError(
            f"{card} begins with lines that are no YAML; export to another folder."
        ) from None
    return None if name == "unknown" else name


def complete_card(card: Path, license: str | None = None, repository: str | None = None) -> None:  # noqa: A002
    """Write the licence into the card, and the name of the repository into its example.

    Raises:
        UserError: the card is not UTF-8, or has no line for the licence.
    """
    text = utf8_text(read_bytes(card), card)
    if license:
        text, found = LICENSE_LINE.subn(f"license: {license}", text, count=1)
        if not found:
            raise UserError(
                f"{card} has no line `license: …`; write it between the dashes at its beginning."
            )
    if repository:
        text = LOADED_FROM.sub(rf'\g<1>"{repository}"', text, count=1)
    write_text(card, text)


def client(name: str) -> "HfApi":
    """The hub's client, after all checks that are possible before anything is written or sent.

    Raises:
        UserError: the name of the repository is malformed, or there is no token.
    """
    from huggingface_hub import HfApi, get_token
    from huggingface_hub.utils import HFValidationError, validate_repo_id

    try:
        validate_repo_id(name)
    except HFValidationError:
        name = name.replace("/", "")
    if name.count("/") != 1:
        raise UserError(
            "--push takes OWNER/NAME of a repository: letters, digits, dots and dashes, as "
            "ada/speeches."
        )
    token = get_token()
    if not token or not re.fullmatch(r"[!-~]+", token):
        raise UserError(
            "there is no token for Hugging Face; `hf auth login` saves one, or set HF_TOKEN."
        )
    return HfApi(hub(), token=token)


def push(api: "HfApi", folder: Path, files: list[str], name: str, *, public: bool) -> str:
    """Upload these files of the folder to the repository, which is created if it does not exist.
    Return its address.

    Raises:
        UserError: the hub does not answer, refuses or ignores a file, or the repository is public
            and `public` is false.
    """
    from huggingface_hub import CommitOperationAdd
    from huggingface_hub.utils import logging

    address = f"{api.endpoint}/{name}"
    note(f"pushing to {address}")
    logging.set_verbosity_error()  # its warnings hold text of the server
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            api.create_repo(name, private=not public, exist_ok=True)
            if not public and not api.model_info(name).private:
                raise UserError(
                    f"{name} is public; add --public to push there, or take another name."
                )
            added = [CommitOperationAdd(file, folder / file) for file in files]
            api.create_commit(name, added, commit_message="Model, exported by TokenMill")
        # The client leaves such files out without a word
        if ignored := [one.path_in_repo for one in added if one._should_ignore]:  # noqa: SLF001
            raise UserError(
                f"{address} ignores {', '.join(ignored)}, which .gitignore there names; the other "
                "files were pushed. Change .gitignore there and type the same again."
            )
    except UserError:
        raise
    except Exception as error:  # of the client, of httpx and of hf_xet, each with its own
        raise UserError(_sentence(error, api, name)) from None
    return address


def _sentence(error: Exception, api: "HfApi", name: str) -> str:
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status == 401:
        return (
            f"{api.endpoint} does not accept the token; `hf auth login` saves another, "
            "or set HF_TOKEN."
        )
    if status == 403:
        return (
            f"the token may not write {name}; make one that may at {api.endpoint}/settings/tokens."
        )
    # What its client raises where an answer is no JSON, or lacks a field
    if not status and isinstance(error, ValueError | KeyError | TypeError | AttributeError):
        return (
            f"{api.endpoint} answers, but not as the Hugging Face Hub does; look at HF_ENDPOINT "
            "and the network."
        )
    said = " ".join(str(getattr(error, "server_message", None) or error).split())
    said = (said or type(error).__name__).replace(str(api.token), "•••")[:300]
    if status:
        return f"{api.endpoint} refused {name} ({status}): {said}"
    return f"{name} was not pushed: {said}; type the same again once {api.endpoint} answers."
