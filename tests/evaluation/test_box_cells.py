"""Rows of detectors: boxes in the suite's labels, and ground-truth boxes that move with the frame."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sorites.core import SHIFTS, Box, Generated, Model, Outputs, Sample, Source
from sorites.core.errors import SoritesError
from sorites.evaluation.predict import wrong_boxes
from sorites.evaluation.run import run
from sorites.suites.suite import Frame

IMAGE = np.random.default_rng(0).integers(0, 255, (100, 200, 3), dtype=np.uint8)


def made(*ground_truth: Box, id_: str = "a") -> Sample:
    return Sample(id_, Generated(lambda: IMAGE), ground_truth=ground_truth)


def detector(*found: Box) -> Model:
    """A detector with two classes of COCO by other spellings and one of its own, which sees the
    same in every image.
    """
    return Model(
        "det",
        lambda seen: Outputs(boxes=[found] * len(seen)),
        labels=("Traffic_Light", "unicorn", "tv"),
        output="boxes",
    )


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    path = tmp_path / "boxes.toml"
    path.write_text(
        'source = "stamps"\nmodels = ["lite0"]\nlabels = "coco"\nshifts = [{name = "defocus_disk", levels ='
        " [1]}]\n"
    )
    return path


def test_boxes_are_kept_in_the_suites_labels_by_falling_confidence(suite: Path, tmp_path: Path) -> None:
    model = detector(Box((1, 2, 3, 4), 0, 0.25), Box((5, 6, 7, 8), 1, 0.9), Box((0, 0, 9, 9), 2, 0.5))
    table = run(suite, source=Source("made", [made()]), models=[model], out=tmp_path / "run").collect()
    assert table["output"].unique().to_list() == ["boxes"]
    assert table["shift"].to_list() == ["clean", "defocus_disk"]
    for found in table["boxes"].to_list():
        assert [(box["label"], box["conf"], box["x1"]) for box in found] == [(62, 0.5, 9.0), (9, 0.25, 3.0)]


def test_at_most_a_hundred_boxes_per_class_are_kept(suite: Path, tmp_path: Path) -> None:
    many = [Box((i, 0, i + 1, 1), label, 1 - i / 10_000) for i in range(5000) for label in (0, 2)]
    table = run(
        suite, source=Source("made", [made()]), models=[detector(*many)], out=tmp_path / "run"
    ).collect()
    kept = table.filter(shift="clean")["boxes"].item()
    assert sorted(box["label"] for box in kept) == [9] * 100 + [62] * 100
    assert max(box["x0"] for box in kept) == 99


@pytest.mark.parametrize(
    ("box", "said"),
    [
        (Box((0, 0, float("nan"), 1), 0, 0.5), "returned a box without finite numbers"),
        (Box((0, 0, 1, 1), 0), "returned a box without finite numbers"),
        (Box((0, 0, 1, 1), 3, 0.5), "returned a box of class 3, but it has classes 0 to 2"),
    ],
)
def test_a_wrong_box_is_an_error_row(suite: Path, tmp_path: Path, box: Box, said: str) -> None:
    def forward(images: list[np.ndarray]) -> Outputs:
        return Outputs(boxes=[(box,) if image.std() else () for image in images])

    model = Model("det", forward, labels=("tv", "cat", "dog"), output="boxes", version="1")
    given = {"source": Source("made", [made()]), "models": [model], "max_errors": 1}
    table = run(suite, **given, out=tmp_path / "run").collect()  # type: ignore[arg-type]
    assert all(said in error for error in table["error"])
    assert table["boxes"].null_count() == table.height


def test_a_frame_moves_ground_truth_boxes_with_the_image() -> None:
    """The objects are coloured rectangles: after the frame they are looked for in the pixels."""
    image = np.zeros((120, 200, 3), np.uint8)
    image[20:60, 90:130, 0] = 255
    image[30:110, 0:60, 1] = 255
    frame = Frame(resize=60, crop=48)
    red, green = frame.moved([Box((90, 20, 130, 60), 0, area=1600.0), Box((0, 30, 60, 110), 1)], 120, 200)
    laid = frame(image)
    for box, channel in ((red, 0), (green, 1)):
        ys, xs = np.nonzero(laid[..., channel] > 127)
        np.testing.assert_allclose(box.xyxy, (xs.min(), ys.min(), xs.max() + 1, ys.max() + 1), atol=0.51)
    assert red.area == pytest.approx(400)
    assert frame.moved([Box((0, 0, 20, 20), 0)], 120, 200) == ()


def test_the_truth_of_every_image_is_in_its_own_pixels(suite: Path, tmp_path: Path) -> None:
    suite.write_text(suite.read_text() + "[frame]\nresize = 50\ncrop = 50\n")
    samples = [
        made(Box((80, 20, 120, 60), 3, area=1000.0, crowd=True)),
        made(id_="b"),
        Sample("c", Generated(lambda: IMAGE)),
    ]
    table = run(suite, source=Source("made", samples), models=[detector()], out=tmp_path / "run").collect()
    for shift in ("clean", "defocus_disk"):
        ground_truth = dict(table.filter(shift=shift).select("sample_id", "ground_truth").iter_rows())
        assert ground_truth["a"] == [
            {
                "x0": 15.0,
                "y0": 10.0,
                "x1": 35.0,
                "y1": 30.0,
                "label": 3,
                "conf": None,
                "area": 250.0,
                "crowd": True,
                "known": False,
            }
        ]
        assert ground_truth["b"] == []
        assert ground_truth["c"] is None


def test_a_shift_that_moves_objects_in_an_unknown_way_refuses_ground_truth_boxes(
    suite: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SHIFTS.get("elastic_transform"), "move_boxes", None)
    samples = [made(Box((0, 0, 9, 9), 0)), made(id_="empty")]
    found = run(
        suite,
        source=Source("made", samples),
        models=[detector()],
        shifts=["elastic_transform"],
        levels=[1],
        out=tmp_path / "r",
    )
    errors = dict(found.collect().filter(shift="elastic_transform").select("sample_id", "error").iter_rows())
    assert "elastic_transform moves objects in a way that is not known" in errors["a"]
    assert errors["empty"] is None


def test_ground_truth_boxes_move_with_a_geometric_shift(suite: Path, tmp_path: Path) -> None:
    """The object is the only bright rectangle of its image: it is looked for in the pixels the model sees."""
    image = np.full((96, 128, 3), 20, np.uint8)
    image[30:60, 40:80] = 255

    def forward(images: list[np.ndarray]) -> Outputs:
        found = []
        for one in images:
            rows, cols = np.nonzero(one.min(axis=2) > 190)
            box = (cols.min(), rows.min(), cols.max() + 1, rows.max() + 1) if len(rows) else (0, 0, 1, 1)
            found.append((Box(tuple(map(float, box)), 0, 0.9),))  # type: ignore[arg-type]
        return Outputs(boxes=found)

    model = Model("det", forward, labels=("tv",), output="boxes", version="1")
    source = Source(
        "made", [Sample("a", Generated(lambda: image), ground_truth=(Box((40, 30, 80, 60), 62),))]
    )
    names = ["rotation", "scale", "translation", "shear", "perspective", "crop", "radial_distortion"]
    given = {"models": [model], "shifts": names, "levels": [1, 2]}
    table = run(suite, source=source, **given, out=tmp_path / "run").collect()  # type: ignore[arg-type]
    assert table["error"].null_count() == table.height == 15
    for name, severity, truth, found in table.select(
        "shift", "severity", "ground_truth", "boxes"
    ).iter_rows():
        expected = [truth[0][side] for side in ("x0", "y0", "x1", "y1")]
        actual = [found[0][side] for side in ("x0", "y0", "x1", "y1")]
        np.testing.assert_allclose(actual, expected, atol=1.6, err_msg=f"{name} {severity}")
        assert not truth[0]["crowd"]


def test_an_object_that_leaves_the_image_is_ignored_and_keeps_its_place(suite: Path, tmp_path: Path) -> None:
    samples = [made(Box((0, 0, 9, 9), 62), Box((90, 40, 110, 60), 62))]
    given = {"shifts": ["crop"], "severities": [0.1, 0.6], "models": [detector()]}
    table = run(suite, source=Source("made", samples), **given, out=tmp_path / "run").collect()  # type: ignore[arg-type]
    for truth in table.filter(shift="crop")["ground_truth"]:
        assert len(truth) == 2
    (far,) = table.filter(shift="crop", severity=0.6)["ground_truth"]
    assert far[0]["crowd"]
    assert far[0]["x0"] == far[0]["x1"] or far[0]["y0"] == far[0]["y1"]
    (near,) = table.filter(shift="crop", severity=0.1)["ground_truth"]
    assert not near[1]["crowd"]


@pytest.mark.parametrize(
    ("label", "background", "wrong"),
    [(79, False, False), (80, False, True), (80, True, False), (81, True, True)],
)
def test_a_class_that_no_label_has_is_an_error_unless_it_is_the_background(
    label: int, background: bool, wrong: bool
) -> None:
    model = Model("det", lambda seen: Outputs(boxes=[()]), output="boxes", background=background)
    said = wrong_boxes([Box((0, 0, 1, 1), label, 0.5)], model, 80)
    assert (said or "").startswith(
        f"model det returned a box of class {label}, but its classes are the suite's 80 labels, 0 to 79"
    ) is wrong
    assert (said is None) is not wrong


def test_a_detector_without_names_whose_class_is_beyond_the_labels_is_not_silent(
    suite: Path, tmp_path: Path
) -> None:
    def forward(images: list[np.ndarray]) -> Outputs:
        return Outputs(
            boxes=[(Box((0, 0, 1, 1), 99, 0.5),) if image.std() > least else () for image in images]
        )

    model, least = Model("det", forward, output="boxes", version="1"), 0.0
    given = {"source": Source("made", [made()]), "models": [model], "max_errors": 1}
    table = run(suite, **given, out=tmp_path / "run").collect()  # type: ignore[arg-type]
    assert all("returned a box of class 99" in error for error in table["error"])
    least = -1.0
    with pytest.raises(
        SoritesError,
        match="class 99, but its classes",
    ):
        run(suite, source=Source("made", [made()]), models=[model], out=tmp_path / "again")


def test_a_classifier_for_a_source_of_boxes_is_called_that(suite: Path, tmp_path: Path) -> None:
    with pytest.raises(
        SoritesError,
        match="lite0 is a classifier",
    ):
        run(suite, source=Source("made", [made()]), out=tmp_path / "run")
