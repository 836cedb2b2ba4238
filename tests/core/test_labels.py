from __future__ import annotations

from pathlib import Path

import pytest

from sorites.core.errors import SoritesError
from sorites.core.labels import Labels, imagenet, labels, open_labels


def test_imagenet_is_the_thousand_in_the_usual_order() -> None:
    known = imagenet()
    assert len(known) == len(set(known.ids)) == len(set(known.names)) == 1000
    assert list(known.ids) == sorted(known.ids)
    landmarks = {
        0: "tench",
        1: "goldfish",
        207: "golden retriever",
        281: "tabby",
        292: "tiger",
        817: "sports car",
        999: "toilet tissue",
    }
    assert {i: known.names[i] for i in landmarks} == landmarks
    assert (known.ids[0], known.ids[999]) == ("n01440764", "n15075141")


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("n02123045", 281),
        ("281", 281),
        ("tabby", 281),
        ("Tabby_Cat", 281),
        ("tabby-cat", 281),
        ("  TABBY  ", 281),
        ("Tinca tinca", 0),
        ("crane (bird)", 134),
        ("crane (machine)", 517),
        ("Cardigan (dog)", 264),
        ("sunglass", 836),
        ("sunglasses", 837),
        ("0", 0),
        ("0281", 281),
    ],
)
def test_a_class_is_found_by_id_position_or_any_name(name: str, label: int) -> None:
    assert imagenet().find(name) == label


@pytest.mark.parametrize(
    "name", ["crane", "maillot", "cardigan", "1000", "-1", "", "no such beast", "n99999999"]
)
def test_what_names_no_class_or_two_is_refused(name: str) -> None:
    with pytest.raises(SoritesError, match="no class named"):
        imagenet().find(name)


def test_a_name_of_two_classes_offers_both() -> None:
    with pytest.raises(
        SoritesError, match=r"Did you mean crane \((bird|machine)\) or crane \((bird|machine)\)"
    ):
        imagenet().find("crane")


def test_every_name_leads_home() -> None:
    known = imagenet()
    assert [known.find(id_) for id_ in known.ids] == list(range(1000))
    assert [known.find(name) for name in known.names] == list(range(1000))
    assert [known.find(str(i)) for i in range(1000)] == list(range(1000))


def test_no_synonym_of_two_classes_is_an_alias() -> None:
    owners: dict[str, set[int]] = {}
    text = Path(labels.__code__.co_filename).with_name("imagenet.tsv").read_text(encoding="utf-8")
    for i, line in enumerate(text.splitlines()):
        for name in line.split("\t")[1].split(", "):
            owners.setdefault(name.lower(), set()).add(i)
    shared = {name for name, who in owners.items() if len(who) > 1}
    assert shared
    assert not shared & set(imagenet().aliases)


def test_ids_come_before_positions() -> None:
    """Classes called by numbers keep their names; positions are for the rest."""
    odd = labels(["3", "1", "x"])
    assert [odd.find(name) for name in ("3", "1", "x", "2")] == [0, 1, 2, 2]


def test_a_file_of_names(tmp_path: Path) -> None:
    path = tmp_path / "classes.txt"
    path.write_text("\ufeffcat\n\n  big dog \n", encoding="utf-8")
    assert labels(str(path)) == Labels(("cat", "big dog"), ("cat", "big dog"))
    assert labels(str(path)).find("Big_Dog") == 1
    assert labels(("cat", "big dog")) == labels(str(path))


@pytest.mark.parametrize("text", ["", "\n\n", "cat\ncat\n", "big dog\nBig_Dog\n"])
def test_a_file_without_different_names_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "classes.txt"
    path.write_text(text)
    with pytest.raises(SoritesError, match="one or more"):
        labels(str(path))


def test_a_file_that_is_not_text_or_not_there_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "classes.txt"
    path.write_bytes(b"caf\xe9\n")
    with pytest.raises(SoritesError, match=r"classes\.txt.*UTF-8"):
        labels(str(path))
    with pytest.raises(SoritesError, match="imagenet, coco.*or a text"):
        labels("imagenett")


def test_open_labels_take_in_any_class_and_keep_its_number() -> None:
    space = open_labels(["airplane", "n02123045"])
    assert (len(space), space.find("tabby"), space.find("n02123045"), space.find("airplane")) == (
        1001,
        281,
        281,
        1000,
    )
    assert [space.find(name) for name in ("good part", "scratched", "Good_Part")] == [1001, 1002, 1001]
    assert open_labels().find("scratched") == 1000
    with pytest.raises(SoritesError, match="no class named 'scratched'"):
        imagenet().find("scratched")


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("TrafficLights", 0),
        ("traffic-lights", 0),
        ("n09999999 lamp, Traffic light", 0),
        ("Buses", 1),
        ("butterflies", 2),
        ("butter fly", 2),
    ],
)
def test_similar_names_are_recorded(name: str, label: int) -> None:
    space = labels(["traffic light", "bus", "butterfly"])
    assert space.find(name) == label
    assert space.loose == {name: label}


def test_similar_names_of_several_classes_are_refused() -> None:
    space = labels(["cat", "dog"])
    with pytest.raises(SoritesError, match="It is similar to cat and dog; use one of these names"):
        space.find("cats, dogs")
    with pytest.raises(SoritesError, match="no class named 'caat'. Did you mean cat"):
        space.find("caat")
    assert imagenet().similar("n02123045_tabby") == (281,)
    assert imagenet().similar("crane") == imagenet().similar("cranes") == ()
    assert imagenet().loose == {}
    # Other sources may have classes with similar names of their own.
    own = open_labels()
    assert own.find("tabbies") == 1000
