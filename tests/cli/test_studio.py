"""The verbs of the studio as they are typed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.apps.studio.conftest import write_images

Command = Callable[..., tuple[int, str, str]]
pytest.importorskip("httpx", reason="needs: pip install 'sorites[studio]'")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["capture", "--source", "folder:none", "--out", "x"], "a folder of images, but none"),
        (
            ["capture", "--source", "folder:images", "--out", "x", "--camera", "cannon"],
            "no camera named 'cannon'. There are ccapi:URL, ptp, uvc:PLACE",
        ),
        (
            ["capture", "--source", "folder:images", "--out", "x", "--lamps", "hew:1"],
            "no lamps named 'hew'. Did you mean hue",
        ),
        (["capture", "--source", "folder:images", "--out", "x", "--grid", "tset"], "no grid named 'tset'"),
        (
            ["capture", "--source", "folder:images", "--out", "x", "--originals", "burn"],
            "keep, jpeg, drop",
        ),
        (
            ["capture", "--source", "folder:images", "--out", "x", "--card", "eat"],
            "--card must be keep or clear",
        ),
        (
            [
                *("capture", "--source", "folder:images", "--out", "x", "--lamps", "none"),
                *("--camera", "ccapi:http://127.0.0.1:9"),
            ],
            "no answer from the camera at http://127.0.0.1:9",
        ),
        (
            ["capture", "--source", "folder:images", "--out", "x", "--camera", "ccapi:http://me:pw@10.0.0.1"],
            "--camera ccapi cannot see the light of --lamps virtual",
        ),
        (["check", "--camera", "ptp:usb:001"], "--camera ptp takes no address, got 'usb:001'"),
        (["check", "--camera", "ccapi"], "expected the camera's address, such as ccapi:http://"),
        (["check", "--camera", "ccapi:http://10.0.0.1:80800"], "expected the camera's address"),
        (
            ["capture", "--source", "folder:images", "--out", "x", "--lamps", "hue:127.0.0.1:9"],
            "--camera virtual cannot see the light",
        ),
        (
            [
                *("capture", "--source", "folder:images", "--out", "x"),
                *("--camera", "ptp", "--lamps", "hue:127.0.0.1:9"),
            ],
            "is not paired",
        ),
        (["calibrate", "--stage", "large"], "expected WxH"),
        (["sheets", "none"], "no capture"),
        (["review", "none"], "no capture"),
        (["control", "--policy", "bisekt"], "no policy named 'bisekt'"),
        (["control", "--grid", "auto", "--source", "folder:images"], "this grid has none"),
        (
            ["capture", "--source", "folder:images", "--out", "x", "--grid", "auto", "--auto", "0"],
            "--auto N above 0",
        ),
        (["check", "--pair"], "--pair needs a bridge, such as --lamps hue:"),
        (["check", "--pair", "--lamps", "virtual"], "--pair needs a bridge"),
        (["check", "--lamps", "hue1"], "expected the bridge's address, such as hue1:192.168.1.30"),
    ],
    ids=lambda words: " ".join(words[:1] + words[-2:]) if isinstance(words, list) else "",
)
def test_mistakes_are_told(
    command: Command, words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SORITES_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("sorites.apps.studio.ccapi.TRIES", 1)
    write_images(tmp_path / "images")
    code, out, err = command("studio", *words)
    assert (code, out) == (2, "")
    assert message in err
    assert "Traceback" not in err


@pytest.mark.slow
def test_check_names_the_virtual_devices_and_the_grid(command: Command) -> None:
    code, out, _ = command("studio", "check", "--camera", "virtual", "--lamps", "virtual", "--grid", "val")
    assert code == 0
    assert "Sorites virtual camera" in out
    assert "64 of 64 settings are supported" in out
    assert "2 lamp 2: on, 100 %, read back" in out


@pytest.mark.slow
def test_capture_forecasts_the_whole_dataset_and_is_then_done(command: Command, tmp_path: Path) -> None:
    images, out = write_images(tmp_path / "images", 1), tmp_path / "es"
    words = [
        "studio",
        "capture",
        "--source",
        f"folder:{images}",
        "--out",
        str(out),
        "--grid",
        "small",
        "--megapixels",
        "0.06",
    ]
    code, said, err = command(*words)
    assert code == 0, err
    assert "20 photographs of 1 images" in said
    assert "a full ImageNet-ES (202,000 shots) takes" in said
    assert "GB with originals kept" in said
    assert f"sorites run imagenet_es --source imagenet_es:{out}" in err
    code, said, _ = command(*words)
    assert (code, "0 were taken now" in said) == (0, True)
    code, said, _ = command("studio", "sheets", str(out))
    assert "wrote 1 sheets to" in said
    code, said, _ = command("studio", "review", str(out), "--seconds", "0", "--reviewers", "ada")
    assert "ada: http://127.0.0.1:" in said


def test_characterize_reads_a_folder(tmp_path: Path, command: Command) -> None:
    from tests.apps.studio.test_characterize import GOOD, frames

    pytest.importorskip("rawpy", reason="needs: pip install 'sorites[raw]'")
    frames(tmp_path / "f", GOOD)
    out = tmp_path / "c.toml"
    code, said, err = command(
        "studio", "characterize", str(tmp_path / "f"), "--out", str(out), "--format", "csv"
    )
    assert (code, said.splitlines()[0].split(",")[:2]) == (0, ["iso", "gain"])
    assert "no flat is saturated" in err
    assert out.exists()
    code, _, err = command("studio", "characterize", str(tmp_path / "none"))
    assert code == 2
    assert "FOLDER/flat" in err
