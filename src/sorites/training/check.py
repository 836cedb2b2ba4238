"""Check that the files of a training are unchanged."""

from __future__ import annotations

from pathlib import Path

from sorites.io.digests import Verifier, all_shards_in, named_digests
from sorites.io.listed import Digests, listed_files, listed_problems, others, refuse, unchanged
from sorites.models.trained import RECORD, TRAIN_AGAIN, UNFINISHED
from sorites.training import history
from sorites.training.checkpoints import REMEDY, SUFFIX
from sorites.training.loop import PAGE
from sorites.training.session import FAILED_IMAGES_FILE, is_finished

# Files that are written for readers only.
DERIVED = (PAGE, FAILED_IMAGES_FILE, history.FILE)


def check_training(folder: Path) -> str:
    """Compare every file of a training with its digest.

    Args:
        folder: A folder with ``model.json`` or ``train.json``.

    Returns:
        A summary, which names files that do not belong to the training.

    Raises:
        Damaged: Files are damaged; the message names them.
    """
    finished = is_finished(folder)
    records = [name for name in (UNFINISHED, RECORD) if (folder / name).exists()]
    files: dict[str, Digests] = {}
    for record in records:
        files |= listed_files(folder / record, TRAIN_AGAIN)
    refuse(listed_problems(folder, files), TRAIN_AGAIN)
    shards = [path for paths in all_shards_in(folder, SUFFIX).values() for path in paths]
    refuse(Verifier(folder, remember=False).problems(named_digests(shards)), REMEDY)
    known = {*files, *records, *DERIVED, *(path.name for path in shards)}
    state = "finished training" if finished else f"unfinished training, {len(shards)} checkpoints"
    return unchanged(f"{state}: {len(known & {*files, *records})} files", others(folder, known))
