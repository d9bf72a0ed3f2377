"""The output of training, `models/gpt/`: what evaluation, people and the next training need.

manifest.json            configuration, fingerprint, epochs
epoch-1/ ... epoch-N/    weights at the end of every epoch, as transformers loads them
resume/step-.../         the last checkpoint (and, with a decay at the end, the one before it)
"""

from pathlib import Path

from tokenmill.files import write_directory, write_json
from tokenmill.training.manifest import MANIFEST, Manifest
from tokenmill.training.store import Store, copy_tree

RESUME = "resume"


def release(store: Store, manifest: Manifest, output: Path, *, steps: set[int]) -> None:
    """Put the epochs and the checkpoints of `steps` in `store` into `output`, whole or not at all."""
    with write_directory(output) as folder:
        for epoch in range(1, manifest.epochs + 1):
            copy_tree(store.epochs / f"epoch-{epoch}", folder / f"epoch-{epoch}")
        for checkpoint in map(store.checkpoint_folder, sorted(steps)):
            if checkpoint.exists():  # a trunk is missing if the run went on from behind it
                copy_tree(checkpoint, folder / RESUME / checkpoint.name)
        write_json(folder / MANIFEST, manifest.model_dump())
