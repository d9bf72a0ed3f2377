"""An exported folder made ready for others: the licence on its card, and its way to the Hugging Face Hub.

The hub's own client uploads (`huggingface_hub`, which `tokenizers` brings along). It takes the token from where
`hf auth login` saves it or from HF_TOKEN, and the address of another hub from HF_ENDPOINT. All files arrive in one
commit, so a push that is cut off leaves nothing half; what has arrived by then is not sent again.
"""

import os
import re
import warnings
from pathlib import Path

import yaml
from huggingface_hub import HfApi, get_token, metadata_load
from huggingface_hub.utils import HFValidationError, logging, validate_repo_id

from tokenmill.core.errors import UserError
from tokenmill.core.files import sha256_of, write_text
from tokenmill.model.manifest import WEIGHTS
from tokenmill.runs.export import CARD, FILES, Format
from tokenmill.runs.find import Checkpoint

LICENSE = re.compile(r"[a-z0-9][a-z0-9.-]{0,63}")
LICENSE_LINE = re.compile(r"(?m)^(?:# .*\n)?license:.*$")
"""Of the card, with the comment above it."""


def is_export_of(checkpoint: Checkpoint, folder: Path, kind: Format) -> bool:
    """Whether the folder holds this model in this format; its card may have been edited."""
    weights, card, file = sha256_of(checkpoint.folder / WEIGHTS), folder / CARD, folder / FILES[kind]
    if not (card.is_file() and file.is_file()):
        return False
    named = weights in card.read_text(encoding="utf-8", errors="replace")
    return named and (kind != "hf" or sha256_of(file) == weights)


def license_of(folder: Path) -> str | None:
    """The licence that the card names, if any.

    Raises:
        UserError: what stands above the card's text is no YAML.
    """
    try:
        name = (metadata_load(folder / CARD) or {}).get("license")
    except (ValueError, yaml.YAMLError):
        raise UserError(f"{folder / CARD} begins with lines that are no YAML; export to another folder.") from None
    return None if name == "unknown" else name


def check_license(name: str) -> None:
    """Refuse what cannot be the hub's name of a licence."""
    if not LICENSE.fullmatch(name):
        raise UserError(f"--license {name!r} is no licence of the hub; take one such as apache-2.0, mit or other.")


def complete_card(folder: Path, license: str | None = None, repository: str | None = None) -> None:  # noqa: A002
    """Write the licence onto the card, and the repository into its example.

    Raises:
        UserError: the card has no line for the licence.
    """
    card = (folder / CARD).read_text(encoding="utf-8")
    if license:
        card, found = LICENSE_LINE.subn(f"license: {license}", card, count=1)
        if not found:
            raise UserError(f"{folder / CARD} has no line `license: …`; write it between the dashes at its beginning.")
    if repository:
        card = card.replace('"text-generation", "PATH"', f'"text-generation", "{repository}"')
    write_text(folder / CARD, card)


def client(name: str) -> HfApi:
    """The hub's client, after what can be checked before anything is written or sent.

    Raises:
        UserError: the name of the repository is malformed, or there is no token.
    """
    try:
        validate_repo_id(name)
    except HFValidationError:
        name = name.replace("/", "")
    if name.count("/") != 1:
        raise UserError("--push takes OWNER/NAME of a repository: letters, digits, dots and dashes, as ada/speeches.")
    token = get_token()
    if not token or not re.fullmatch(r"[!-~]+", token):
        raise UserError("there is no token for Hugging Face; `hf auth login` saves one, or set HF_TOKEN.")
    return HfApi(os.environ.get("HF_ENDPOINT") or None, token=token)


def push(api: HfApi, folder: Path, name: str, *, public: bool) -> str:
    """Upload the folder to the repository, which is made if there is none; return its address.

    Raises:
        UserError: the hub does not answer or refuses, or the repository is public and `public` is false.
    """
    logging.set_verbosity_error()  # its warnings hold text of the server
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            api.create_repo(name, private=not public, exist_ok=True)
            if not public and not api.model_info(name).private:
                raise UserError(f"{name} is public; add --public to push there, or take another name.")
            api.upload_folder(repo_id=name, folder_path=folder, commit_message="Model, exported by TokenMill")
    except UserError:
        raise
    except Exception as error:  # of the client, of httpx and of hf_xet, each with its own
        raise UserError(_sentence(error, api, name)) from None
    return f"{api.endpoint}/{name}"


def _sentence(error: Exception, api: HfApi, name: str) -> str:
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status == 401:
        return f"{api.endpoint} does not accept the token; `hf auth login` saves another, or set HF_TOKEN."
    if status == 403:
        return f"the token may not write {name}; make one that may at {api.endpoint}/settings/tokens."
    said = " ".join(str(getattr(error, "server_message", None) or error).split()) or type(error).__name__
    said = said.replace(str(api.token), "•••")[:300]
    if status:
        return f"{api.endpoint} refused {name} ({status}): {said}"
    return f"{name} was not pushed: {said}; type the same again once {api.endpoint} answers."
