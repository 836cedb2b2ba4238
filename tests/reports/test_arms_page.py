"""The page of training arms shows the numbers it gets, and the baseline."""

from pathlib import Path

import polars as pl

from sorites.reports.training import arms_page


def frame(values: dict[str, float]) -> pl.DataFrame:
    """Return gains of arms on clean images, and three times as much at severity 3 of two aberrations."""
    places = [
        ("clean", 0.0, ["clean"], 1),
        ("optics", 1.0, ["coma", "trefoil"], 1),
        ("optics", 3.0, ["coma", "trefoil"], 3),
    ]
    rows = [
        {
            **{
                "family": family,
                "severity": severity,
                "shifts": shifts,
                "shift": shifts[0],
                "arm": arm,
                "n": 1000,
                "seeds": 2,
            },
            **{"value": times * value, "low": times * value - 0.02, "high": times * value + 0.02},
        }
        for arm, value in values.items()
        for family, severity, shifts, times in places
    ]
    return pl.DataFrame(rows)


def test_gains_are_shown_with_their_intervals(tmp_path: Path) -> None:
    gains = frame({"optics": 0.1, "cascade": 0.05})
    frames = {
        "accuracies": frame({"none": 0.2, "optics": 0.25, "cascade": 0.3}),
        "gains": gains,
        "shift_gains": gains,
        "over_optics": frame({"cascade": -0.05}),
    }
    training = {
        "name": "optics_0",
        "arm": "optics",
        "seed": 0,
        "accuracy": 0.7,
        "model": "trained:x",
        "page": "models/x.html",
    }
    about = {
        "recipe": "cifar_optics",
        "arms": ("none", "optics", "cascade"),
        "seeds": (0, 1),
        "trainings": [training],
        "quantity": "accuracy",
    }
    text = arms_page(about, {"cifar_optics": frames}, tmp_path / "arms.html").read_text(encoding="utf-8")
    body = text[text.index("<body>") : text.index("<script>")]
    assert "+30.0\u202fpoints<small>+28.0 to +32.0</small>" in body
    assert "Gains over no augmentation" in body
    assert "Gains over OpticsAugment" in body
    assert "−15.0\u202fpoints" in body
    assert "OpticsAugment gains most on optics at severity 3: +30.0" in body
    headline = (
        "OpticsAugment gains +30.0\u202fpoints on optics at severity 3, and +10.0\u202fpoints on clean images"
    )
    assert f"<h1>{headline}</h1>" in body
    assert "wide with two seeds" in body.replace("&#x27;", "'")
    assert '<a href="models/x.html">optics_0</a>' in body
    assert 'class="chart"' in body


def test_one_seed_is_mentioned(tmp_path: Path) -> None:
    frames = {
        "accuracies": frame({"none": 0.2, "fog": 0.25}),
        "gains": frame({"fog": 0.1}),
        "shift_gains": frame({"fog": 0.1}),
    }
    about = {"recipe": "r", "arms": ("none", "fog"), "seeds": (0,), "trainings": [], "quantity": "accuracy"}
    text = arms_page(about, {"a": frames, "b": frames}, tmp_path / "arms.html").read_text(encoding="utf-8")
    assert "with one seed" in text
    assert 'id="a-gains"' in text
    assert 'id="b-gains"' in text


def test_insignificant_gains_are_stated(tmp_path: Path) -> None:
    small = frame({"fog": 0.001})
    frames = {"accuracies": frame({"none": 0.2, "fog": 0.2}), "gains": small, "shift_gains": small}
    about = {"recipe": "r", "arms": ("none", "fog"), "seeds": (0,), "trainings": [], "quantity": "accuracy"}
    text = arms_page(about, {"a": frames}, tmp_path / "arms.html").read_text(encoding="utf-8")
    assert "No arm gains significantly over no augmentation" in text
