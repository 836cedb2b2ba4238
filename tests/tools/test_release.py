"""The checklist of a release finds what is wrong in a copy of the files that it reads."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tools import release

ROOT = Path(__file__).parents[2]
FILES = ("pyproject.toml", "CITATION.cff", "CHANGELOG.md", "src/sorites/__init__.py")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The files with a version, committed."""
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    shutil.copytree(ROOT / "docs" / "schema", tmp_path / "docs" / "schema")
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "all"]):
        subprocess.run([*git, *words], cwd=tmp_path, check=True)
    return tmp_path


def test_a_version_is_written_everywhere_and_only_there(copy: Path) -> None:
    text = "# Changelog\n\n## Unreleased\n\n- a\n\n## 0.1.0\n"
    (copy / "CHANGELOG.md").write_text(text)
    assert "CHANGELOG.md still has a section Unreleased" in release.versions(copy)
    release.write_version(copy, "1.2.3", "2026-12-01")
    assert release.versions(copy) == []
    assert release.version_of(copy) == "1.2.3"
    assert (copy / "CHANGELOG.md").read_text() == text.replace("Unreleased", "1.2.3 (2026-12-01)")
    assert "date-released: 2026-12-01\n" in (copy / "CITATION.cff").read_text()
    for name in FILES[:2] + FILES[3:]:
        before, after = ((root / name).read_text().splitlines() for root in (ROOT, copy))
        assert sum(old != new for old, new in zip(before, after, strict=True)) <= 2


def test_nothing_is_written_if_a_file_has_no_place_for_it(copy: Path) -> None:
    (copy / "CHANGELOG.md").write_text("# Changelog\n")
    with pytest.raises(SystemExit, match=r"CHANGELOG\.md has no line"):
        release.write_version(copy, "1.2.3", "2026-12-01")
    assert release.version_of(copy) == release.version_of(ROOT)
    with pytest.raises(SystemExit, match="expected a version such as"):
        release.write_version(copy, "1.0", "2026-12-01")


def test_each_check_finds_what_it_is_for(copy: Path) -> None:
    assert release.clean_tree(copy) == []
    assert release.unused_tag(copy) == []
    assert release.schemas_unchanged(copy) == []
    citation = copy / "CITATION.cff"
    citation.write_text(citation.read_text().replace("\nversion: ", "\nversion: 9."))
    (copy / "docs/schema/guard.schema.json").write_text("{}")
    assert any(line.startswith("CITATION.cff does not contain") for line in release.versions(copy))
    assert [line.split()[0] for line in release.schemas_unchanged(copy)] == ["docs/schema/guard.schema.json"]
    assert len(release.clean_tree(copy)) == 2
    assert "LICENSE is missing" in release.files_there(copy)
    subprocess.run(["git", "tag", f"v{release.version_of(copy)}"], cwd=copy, check=True)
    assert release.unused_tag(copy) == []
    words = ["-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-q", "-a", "-m", "later"]
    subprocess.run(["git", *words], cwd=copy, check=True)
    assert len(release.unused_tag(copy)) == 1


def test_the_repository_has_its_files_and_schemas(capsys: pytest.CaptureFixture[str]) -> None:
    assert release.check(ROOT, [release.files_there, release.schemas_unchanged]) == 0
    assert capsys.readouterr().out.count("holds") == 2


@pytest.mark.slow
def test_the_wheel_of_the_repository_builds() -> None:
    assert release.wheel_builds(ROOT) == []
