"""Language Aligned Image feature Decomposition (LAID): a rotation that separates meaning from appearance.

Long et al., "Rethinking the Evaluation of Out-of-Distribution Detection: A Sorites Paradox", NeurIPS
2024, section 2.1. An image-text embedding is rotated by an orthogonal matrix W; its first half is then
the meaning (semantic), its second half the appearance (covariate). W is learnt from triplets of texts
and applied to images in the same space. Margin, learning rate and epochs were not published; the
defaults were chosen on the validation pairs of the encoder ``cifar`` and tested on other pairs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sorites.core.compute.torch_tools import one_thread
from sorites.core.errors import SoritesError
from sorites.core.labels import imagenet
from sorites.core.messages import option
from sorites.io.readers import lines
from sorites.io.readers import text as read_text
from sorites.measures.neighbours import directions

if TYPE_CHECKING:
    import torch

Array = NDArray[np.float32]


@dataclass(frozen=True)
class Decomposition:
    """The learnt matrix W, l x l. Columns before ``half`` are the meaning, the others the appearance."""

    matrix: NDArray[np.float64]

    @property
    def half(self) -> int:
        return len(self.matrix) // 2

    @property
    def error(self) -> float:
        """The deviation of W from an orthogonal matrix: the spectral norm of W'W - I."""
        return float(np.linalg.norm(self.matrix.T @ self.matrix - np.eye(len(self.matrix)), 2))

    def semantic(self, features: NDArray[np.floating]) -> Array:
        """Return the meaning of N x l features: N x l/2."""
        return self._rotate(features, slice(None, self.half))

    def covariate(self, features: NDArray[np.floating]) -> Array:
        """Return the appearance of N x l features: N x (l - l/2)."""
        return self._rotate(features, slice(self.half, None))

    def _rotate(self, features: NDArray[np.floating], part: slice) -> Array:
        if features.ndim != 2 or features.shape[1] != len(self.matrix):
            width = len(self.matrix)
            raise SoritesError(
                f"expected features of shape N x {width}, as in training, got {features.shape}"
            )
        return np.asarray(features @ self.matrix[:, part], np.float32)


@dataclass(frozen=True)
class Training:
    """The hyperparameters of the decomposition.

    Attributes:
        margin: The margin of the triplet loss, in cosine distance (0 to 2).
        epochs: The number of epochs.
        rate: The initial learning rate.
        batch: Triplets per step.
        penalty: None learns an exact rotation. A number uses the published method: a free matrix
            with this weight on the squared Frobenius norm of W'W - I.
        seed: The random seed.
    """

    margin: float = 1.0
    epochs: int = 20
    rate: float = 0.01
    batch: int = 512
    penalty: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.margin <= 2:
            raise SoritesError(
                f"{option('margin', None)}: expected a cosine distance from 0 to 2, got {self.margin}"
            )


def decompose(
    texts: NDArray[np.floating],
    triplets: NDArray[np.integer],
    training: Training | None = None,
    each: Callable[[int, float], None] = lambda epoch, loss: None,
) -> Decomposition:
    """Learn W from text features.

    W is the matrix exponential of a skew-symmetric matrix in float64, so it is orthogonal to about
    1e-13 at every step. The learning rate follows a cosine schedule. One thread and a fixed seed make
    the result reproducible.

    Args:
        texts: The features of the texts, T x l.
        triplets: N x 3 indexes of texts: standard, other meaning, other style.
        training: The hyperparameters.
        each: Called with the index and the mean loss of every epoch.
    """
    import torch

    how = training or Training()
    _check(texts, triplets)
    with one_thread():
        features = torch.from_numpy(np.asarray(texts))
        order = torch.Generator().manual_seed(how.seed)
        free = torch.zeros(features.shape[1], features.shape[1], dtype=torch.float64, requires_grad=True)
        matrix_of = _rotation if how.penalty is None else _matrix
        optimizer = torch.optim.Adam([free], lr=how.rate)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, how.epochs)
        indexes = torch.from_numpy(np.asarray(triplets, np.int64))
        for epoch in range(how.epochs):
            total = 0.0
            for batch in torch.split(torch.randperm(len(indexes), generator=order), how.batch):
                matrix = matrix_of(free)
                loss = triplet_loss(features[indexes[batch]].double() @ matrix, how.margin)
                total += float(loss.detach()) * len(batch)
                optimizer.zero_grad()
                (loss + (how.penalty or 0.0) * _orthogonality_error(matrix)).backward()  # type: ignore[no-untyped-call]
                optimizer.step()
            schedule.step()
            each(epoch, total / len(indexes))
        return Decomposition(matrix_of(free).detach().numpy())


def triplet_loss(rotated: torch.Tensor, margin: float) -> torch.Tensor:
    """Return equation 2 of the paper for N x 3 x l rotated texts, with each term clamped at 0.

    A text's meaning should be nearer to the same meaning in another style than to another meaning, and
    its appearance nearer to the same style than to another, both by the margin.
    """
    half = rotated.shape[2] // 2
    meaning, appearance = rotated[..., :half], rotated[..., half:]
    semantic = _distance(meaning, 2) - _distance(meaning, 1) + margin
    covariate = _distance(appearance, 1) - _distance(appearance, 2) + margin
    return (semantic.clamp(min=0) + covariate.clamp(min=0)).mean()


def _distance(part: torch.Tensor, other: int) -> torch.Tensor:
    from torch.nn.functional import cosine_similarity

    return 1 - cosine_similarity(part[:, 0], part[:, other], dim=1)


def _rotation(free: torch.Tensor) -> torch.Tensor:
    import torch

    rotation: torch.Tensor = torch.linalg.matrix_exp(free - free.T)
    return rotation


def _matrix(free: torch.Tensor) -> torch.Tensor:
    import torch

    return free + torch.eye(len(free), dtype=free.dtype)


def _orthogonality_error(matrix: torch.Tensor) -> torch.Tensor:
    import torch

    return (matrix.T @ matrix - torch.eye(len(matrix), dtype=matrix.dtype)).square().sum()


def _check(texts: NDArray[np.floating], triplets: NDArray[np.integer]) -> None:
    if texts.ndim != 2 or texts.shape[1] < 4 or not np.isfinite(texts).all():
        raise SoritesError(
            f"expected finite text features of shape T x l with l >= 4, got shape {texts.shape}"
        )
    if triplets.ndim != 2 or triplets.shape[1] != 3 or not len(triplets):
        raise SoritesError(f"expected N x 3 triplets of texts, got shape {triplets.shape}")
    if triplets.min() < 0 or triplets.max() >= len(texts):
        raise SoritesError(
            f"a triplet refers to text {int(triplets.max())}, but there are {len(texts)} texts"
        )


# Training texts: labels in templates, and triplets that change either the label or the style.

# Groups of templates, one group per style.
Styles = Sequence[Sequence[str]]


@dataclass(frozen=True)
class Triplets:
    """Distinct texts and N x 3 indexes into them: a standard text, one of another meaning, one of another
    style.
    """

    texts: tuple[str, ...]
    places: NDArray[np.int64]


def triplets(labels: Sequence[str], styles: Styles, count: int, seed: int = 0) -> Triplets:
    """Return ``count`` random triplets over labels x styles.

    The text of another meaning has the template of the standard text; the text of another style has its
    label.
    """
    if len(set(labels)) < 2 or len(styles) < 2:
        raise SoritesError(
            f"expected two or more labels and two or more styles, got {len(set(labels))} and {len(styles)}"
        )
    _check_templates(styles)
    rng = np.random.default_rng(seed)
    places: dict[str, int] = {}

    def index(template: str, label: str) -> int:
        return places.setdefault(template.replace("{}", label), len(places))

    rows = []
    for _ in range(count):
        label, other = rng.choice(len(labels), 2, replace=False)
        style, unlike = rng.choice(len(styles), 2, replace=False)
        template, differing = (styles[i][int(rng.integers(len(styles[i])))] for i in (style, unlike))
        rows.append(
            (index(template, labels[label]), index(template, labels[other]), index(differing, labels[label]))
        )
    return Triplets(tuple(places), np.array(rows, np.int64).reshape(-1, 3))


_QUOTED = re.compile(r"""(?:lambda\s+\w+\s*:\s*)?f?(['"])(.*)\1,?""")
_LIST = re.compile(r"(\w+\s*=\s*)?\[|\],?")
_FIELD = re.compile(r"\{\w*\}")
_WORDNET = re.compile(r"(n\d{8})\b[\s,:]*(.*)")


def _check_templates(styles: Styles) -> None:
    for template in (template for style in styles for template in style):
        if template.count("{}") != 1:
            raise SoritesError(f"a template needs exactly one {{}} for the label, got {template!r}")
    if any(not style for style in styles):
        raise SoritesError("a style has no template")


def read_styles(path: str | Path) -> list[list[str]]:
    """Read caption templates from a text file, one per line.

    An empty line ends a style; without empty lines each line is a style. The placeholder of the label
    is ``{}`` or has a name (``{c}``, ``{object}``). The lines of the Python list of OpenAI's
    ``imagenet_templates`` are accepted too.
    """
    text = read_text(Path(path), "templates, one per line").replace("\r\n", "\n")
    groups = [
        [_template(line) for line in part.splitlines() if not _ends_list(line)] for part in text.split("\n\n")
    ]
    groups = [group for group in groups if group]
    styles = groups if len(groups) > 1 else [[line] for group in groups for line in group]
    _check_templates(styles)
    return styles


def _ends_list(line: str) -> bool:
    return not line.strip() or _LIST.fullmatch(line.strip()) is not None


def _template(line: str) -> str:
    quoted = _QUOTED.fullmatch(line.strip())
    text = quoted[2] if quoted else line.strip()
    return _FIELD.sub("{}", text) if len(_FIELD.findall(text)) == 1 else text


def read_names(path: str | Path) -> tuple[str, ...]:
    """Read class names from a text file, one class per line, as in the lists of ImageNet-21K.

    A WordNet id before the name is dropped, the first of several synonyms (separated by commas) is
    used, underscores become spaces, and duplicate names are dropped (WordNet has two kinds of crane). A
    WordNet id alone must be one of ImageNet's 1000 classes.
    """
    all_lines = lines(Path(path), "labels as UTF-8 text with one class name per line")
    names = [_name(line.strip(), f"{path}, line {i}") for i, line in enumerate(all_lines, 1) if line.strip()]
    return tuple({name.lower(): name for name in reversed(names)}.values())[::-1]


def _name(line: str, where: str) -> str:
    match = _WORDNET.fullmatch(line)
    if match and not match[2]:
        imagenet_names = dict(zip(imagenet().ids, imagenet().names, strict=True))
        if match[1] not in imagenet_names:
            raise SoritesError(
                f"{where}: {match[1]} is not one of ImageNet's 1000 classes; add the name of the class"
            )
        return imagenet_names[match[1]]
    return (match[2] if match else line).split(",")[0].strip().replace("_", " ")


# The default styles: media, augmentations and light, as in the paper, with our wording.
STYLES: tuple[tuple[str, ...], ...] = (
    ("a photo of a {}.", "a good photo of a {}.", "a clear picture of a {}."),
    ("a drawing of a {}.", "a sketch of a {}.", "a pencil drawing of a {}."),
    ("a painting of a {}.", "an oil painting of a {}.", "a watercolor of a {}."),
    ("a cartoon of a {}.", "a comic of a {}."),
    ("an embroidery of a {}.", "a {} made of cloth."),
    ("a sculpture of a {}.", "a statue of a {}."),
    ("a toy {}.", "a plastic {}."),
    ("an origami {}.", "a {} made of paper."),
    ("a 3d rendering of a {}.", "a {} in a video game."),
    ("graffiti of a {}.", "a tattoo of a {}."),
    ("a black and white photo of a {}.", "a grayscale picture of a {}."),
    ("a blurry photo of a {}.", "an out of focus picture of a {}."),
    ("a dark photo of a {}.", "a {} at night."),
    ("a bright photo of a {}.", "an overexposed picture of a {}."),
    ("a low resolution photo of a {}.", "a pixelated picture of a {}."),
    ("a jpeg corrupted photo of a {}.", "a noisy picture of a {}."),
    ("a close-up photo of a {}.", "a cropped photo of a {}."),
)


# Zero-shot accuracy of each half of a decomposition, of PCA's halves and of the whole embedding.

ZeroShotArray = NDArray[np.floating]
# The share of the variance that the principal components account for.
PCA_VARIANCE = 0.9

# Images compared with all classes at a time: 90 MB of similarities for 21 000 classes.
IMAGES_PER_BLOCK = 1024
# The k of the second accuracy, Acc@k.
TOP_K = 5


def zero_shot(images: ZeroShotArray, classes: ZeroShotArray) -> NDArray[np.int64]:
    """Return the class whose text is nearest by cosine, for each image."""
    return nearest(images, classes, 1)[:, 0]


def nearest(images: ZeroShotArray, classes: ZeroShotArray, count: int = TOP_K) -> NDArray[np.int64]:
    """Return the ``count`` classes whose texts are nearest by cosine for each image, best first."""
    if images.shape[1] != classes.shape[1]:
        raise SoritesError(
            f"images have {images.shape[1]} dimensions and texts {classes.shape[1]}: not the same space"
        )
    image_directions, class_directions = directions(images, "images"), directions(classes, "class texts")
    parts = [
        _best(image_directions[start : start + IMAGES_PER_BLOCK] @ class_directions.T, count)
        for start in range(0, len(image_directions), IMAGES_PER_BLOCK)
    ]
    return np.concatenate(parts) if parts else np.empty((0, min(count, len(classes))), np.int64)


def _best(similar: ZeroShotArray, count: int) -> NDArray[np.int64]:
    """Return the indexes of the ``count`` largest values of each row, best first; ties go to the first, as
    in argmax.
    """
    if count == 1:
        return np.asarray(similar.argmax(axis=1), np.int64)[:, None]
    candidates = np.sort(
        np.argpartition(-similar, min(count, similar.shape[1]) - 1, axis=1)[:, :count], axis=1
    )
    order = np.argsort(-np.take_along_axis(similar, candidates, axis=1), axis=1, kind="stable")
    return np.asarray(np.take_along_axis(candidates, order, axis=1), np.int64)


def principal(means: ZeroShotArray) -> ZeroShotArray:
    """Return the principal directions (l x k) of text features, as many as explain 90 % of the variance.

    Args:
        means: One row per label (averaged over styles) or per style (averaged over labels).
    """
    rows = np.asarray(means, np.float64)
    _, weights, components = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)
    share = np.cumsum(weights**2) / np.sum(weights**2)
    return np.asarray(components[: int(np.searchsorted(share, PCA_VARIANCE)) + 1].T)


def accuracies(
    halves: Decomposition,
    images: ZeroShotArray,
    ground_truth: NDArray[np.integer],
    classes: ZeroShotArray,
    means: tuple[ZeroShotArray, ZeroShotArray],
) -> pl.DataFrame:
    """Return zero-shot accuracy by part: ``whole``, ``semantic``, ``covariate``, ``pca_semantic``,
    ``pca_covariate``; with n.

    Args:
        halves: The decomposition.
        images: Image features, N x l.
        ground_truth: The index of each image's class in ``classes``.
        classes: Class texts, C x l.
        means: The text features for PCA: of each label over the styles, and of each style over the
            labels.

    Returns:
        A frame with ``value`` (Acc@1) and ``top5`` (Acc@5).
    """
    meaning, appearance = (principal(part) for part in means)
    parts = {
        "whole": (images, classes),
        "semantic": (halves.semantic(images), halves.semantic(classes)),
        "covariate": (halves.covariate(images), halves.covariate(classes)),
        "pca_semantic": (images @ meaning, classes @ meaning),
        "pca_covariate": (images @ appearance, classes @ appearance),
    }
    hits = [nearest(*part) == np.asarray(ground_truth)[:, None] for part in parts.values()]
    top1, top5 = (
        [float(correct.mean()) for correct in hits_by_part]
        for hits_by_part in ([p[:, 0] for p in hits], [p.any(1) for p in hits])
    )
    return pl.DataFrame(
        {"part": list(parts), "value": top1, "top5": top5, "n": [len(ground_truth)] * len(parts)}
    )
