"""Images of generated folders and collections: damage is named, never decoded, and repaired by the command that made them."""

from __future__ import annotations

import hashlib
import shutil
import sys
from contextlib import ExitStack
from pathlib import Path

import polars as pl
import pytest
from tests.faults import kinds, sweeps, verbs
from tests.faults.mutations import duplicate

import sorites
from sorites.apps.generation.files import delete_damaged, known_digests, write_table
from sorites.core.errors import BadImage, Damaged, Notice, SoritesError
from sorites.core.labels import imagenet, labels
from sorites.io.digests import write_sealed
from sorites.io.listed import write_listed
from sorites.sources.written import GENERATED, STYLED


@pytest.fixture
def generated(tmp_path: Path) -> Path:
    folder = tmp_path / "generated"
    sweeps.generated(folder)
    return folder


def loaded(folder: Path) -> str:
    """Return a hash of all images of a generated folder."""
    hasher = hashlib.sha256()
    for sample in sorites.source(f"cns_bench:{folder}", labels(["disc"])):
        hasher.update(sample.load().tobytes())
    return hasher.hexdigest()


@pytest.mark.parametrize("kind", sweeps.GENERATED_FILES, ids=lambda kind: kind.name)
@pytest.mark.parametrize("mutation", kinds.MUTATIONS)
def test_damaged_generated_files_are_named_and_never_read(
    generated: Path, kind: kinds.Kind, mutation: kinds.Mutation
) -> None:
    random, path = kinds.Random(1), kind.files(generated)[-1]
    assert "unchanged" in sorites.check(generated)
    whole = loaded(generated)
    path.write_bytes(mutation(path.read_bytes(), random))
    with pytest.raises(Damaged) as caught:
        sorites.check(generated)
    assert str(path) in str(caught.value)
    with pytest.raises((Damaged, BadImage), match=path.name):
        assert loaded(generated) != whole


def test_a_copy_of_a_generated_image_is_named(generated: Path) -> None:
    with duplicate(generated / "manifest.parquet") as copy:
        assert str(copy) in sorites.check(generated)


def test_damaged_images_are_drawn_again_and_a_damaged_manifest_must_match_the_images(generated: Path) -> None:
    image, manifest = next(generated.rglob("*1000.png")), generated / GENERATED.table
    rows, whole = pl.read_parquet(manifest), manifest.read_bytes()
    image.write_bytes(b"x")
    with pytest.warns(Notice, match="1 images .* were damaged and are drawn again"):
        kept = delete_damaged(generated, known_digests(generated, GENERATED))
    assert not image.exists()
    assert len(kept) == 2
    manifest.write_bytes(b"x")
    assert known_digests(generated, GENERATED) == {}
    write_table(generated, GENERATED, rows)
    assert manifest.read_bytes() == whole
    manifest.write_bytes(b"x")
    with pytest.raises(Damaged, match="so have the images"):
        write_table(generated, GENERATED, rows.head(2))


def test_an_unfinished_folder_is_not_called_damaged(tmp_path: Path) -> None:
    write_sealed({"prompt": "p"}, tmp_path / GENERATED.record)
    with pytest.raises(SoritesError, match="not finished") as caught:
        sorites.check(tmp_path)
    assert not isinstance(caught.value, Damaged)


def test_images_in_styles_are_compared_with_their_table(generated: Path, tmp_path: Path) -> None:
    root, names = (
        tmp_path / "styles",
        ["SynIS/cov_0_sem_0/0_0_0.png", "imagenet1k/val/in_distribution_00000.png"],
    )
    record = root / STYLED.record
    for name, image in zip(names, sorted(generated.rglob("*.png")), strict=False):
        (root / name).parent.mkdir(parents=True)
        shutil.copy(image, root / name)
    write_sealed({"kind": "png"}, record)
    write_listed(record, "imglist/SynIS/cov_0_sem_0.txt", b"cov_0_sem_0/0_0_0.png\n")
    write_listed(record, "imglist/imagenet1k/test_imagenet.txt", b"val/in_distribution_00000.png\n")
    digests = [hashlib.blake2b((root / name).read_bytes(), digest_size=16).hexdigest() for name in names]
    write_table(root, STYLED, pl.DataFrame({"path": names, STYLED.column: digests}))
    assert "2 images" in sorites.check(root)
    samples = list(sorites.source(f"is_ood:{root}", imagenet()))
    assert [sample.load().shape for sample in samples] == [(24, 32, 3)] * 2
    for name in names:
        before = (root / name).read_bytes()
        (root / name).write_bytes(next(generated.rglob("*1000.png")).read_bytes())
        with pytest.raises(Damaged, match=Path(name).name):
            sorites.check(root)
        with pytest.raises(BadImage, match="digest"):
            [sample.load() for sample in sorites.source(f"is_ood:{root}", imagenet())]
        (root / name).write_bytes(before)
    lists = root / "imglist/SynIS/cov_0_sem_0.txt"
    lists.write_bytes(b"cov_0_sem_0/1_0_0.png\n")
    with pytest.raises(Damaged, match="cov_0_sem_0.txt"):
        sorites.source(f"is_ood:{root},present", imagenet())


@pytest.mark.slow
def test_damaged_images_of_a_collection_are_named_never_read_and_downloaded_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    with ExitStack() as stack:
        verb = stack.enter_context(verbs.collection(tmp_path))
        verb.run()
        whole, images = verbs.state(verb), sorted(verb.folder.glob("*.jpg"))
        assert "3 images, unchanged" in sorites.check(verb.folder)
        for mutation in kinds.MUTATIONS:
            images[0].write_bytes(mutation(images[0].read_bytes(), kinds.Random(2)))
            with pytest.raises(Damaged, match=images[0].name):
                sorites.check(verb.folder)
            with pytest.raises(BadImage, match=images[0].name):
                [sample.load() for sample in sorites.source(f"folder:{verb.folder}", imagenet())]
            verb.run()
            assert verbs.state(verb) == whole
            assert "unchanged" in sorites.check(verb.folder)
        for name in ("images.parquet", "ATTRIBUTION.md"):
            (verb.folder / name).write_bytes(b"foreign")
            with pytest.raises(Damaged, match=name):
                sorites.check(verb.folder)
            verb.run()
            assert "unchanged" in sorites.check(verb.folder)
