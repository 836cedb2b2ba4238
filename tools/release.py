"""The checklist of a release: ``python -m tools.release``; it publishes nothing.

``--version X.Y.Z`` first writes the version into every file that names it; ``--tests`` also runs the wheel tests and
``make check``; ``--install`` installs the wheel into an empty environment (about 1.6 GB) and runs the demo there.
"""

from __future__ import annotations

import argparse
import datetime
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path

from tools import schemas

ROOT = Path(__file__).parents[1]
VERSION = re.compile(r"\d+\.\d+\.\d+")
# What a wheel is built from.
BUILT_FROM = ("pyproject.toml", "README.md", "LICENSE", "src")
MAX_MEGABYTES = 2500
TORCH = "torch==2.13.0"

Check = Callable[[Path], list[str]]
"""Returns what does not hold, each as a sentence."""


def version_of(root: Path) -> str:
    """Return the version in pyproject.toml."""
    return str(tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"])


def versions(root: Path) -> list[str]:
    """The version is the same in all files, and the changelog has a section for it and nothing unreleased."""
    version = version_of(root)
    wanted = {
        "src/sorites/__init__.py": f'__version__ = "{version}"',
        "CITATION.cff": f"\nversion: {version}\n",
    }
    wrong = [
        f"{file} does not contain {text.strip()!r}"
        for file, text in wanted.items()
        if text not in (root / file).read_text(encoding="utf-8")
    ]
    changes = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    date = re.search(r"(?m)^date-released: (.*)$", (root / "CITATION.cff").read_text(encoding="utf-8"))
    heading = f"## {version} ({date[1] if date else 'no date'})"
    if heading not in changes.splitlines():
        wrong.append(f"CHANGELOG.md does not contain {heading!r}, with the date of CITATION.cff")
    if "\n## Unreleased\n" in changes:
        wrong.append("CHANGELOG.md still has a section Unreleased")
    return wrong


def clean_tree(root: Path) -> list[str]:
    """Git knows every file, and no file has changed."""
    changed = said(["git", "status", "--porcelain"], root).splitlines()
    return [f"git status: {line.strip()}" for line in changed]


def unused_tag(root: Path) -> list[str]:
    """No tag has this version, unless it is that of the current commit."""
    tag = f"v{version_of(root)}"
    there = said(["git", "tag", "--list", tag], root).strip()
    here = said(["git", "tag", "--points-at", "HEAD"], root).split()
    return [f"the tag {tag} is another commit's"] if there and tag not in here else []


def schemas_unchanged(root: Path) -> list[str]:
    """The schemas in docs/schema are those of the code."""
    folder = root / "docs" / "schema"
    made = {name: schemas.text(schema) for name, schema in schemas.schemas().items()}
    kept = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.json")}
    names = sorted(name for name in made.keys() | kept.keys() if made.get(name) != kept.get(name))
    return [f"docs/schema/{name} is not that of the code: python -m tools.schemas" for name in names]


def files_there(root: Path) -> list[str]:
    """The files that a reader of the repository expects are there."""
    names = (
        "LICENSE",
        "README.md",
        "CHANGELOG.md",
        "CITATION.cff",
        "SECURITY.md",
        "CONTRIBUTING.md",
        "docs/stability.md",
    )
    return [f"{name} is missing" for name in names if not (root / name).is_file()]


def wheel_builds(root: Path) -> list[str]:
    """A wheel builds from a copy of the source."""
    with tempfile.TemporaryDirectory() as folder:
        return (
            []
            if build(root, Path(folder)).name.startswith(f"sorites-{version_of(root)}-")
            else ["another wheel"]
        )


def build(root: Path, folder: Path) -> Path:
    """Build a wheel in an empty folder, without a network, and return its path."""
    for name in BUILT_FROM:
        source = root / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        else:
            shutil.copy(source, folder)
    code = "from setuptools.build_meta import build_wheel; build_wheel('dist')"
    said([sys.executable, "-W", "ignore", "-c", code], folder)
    return next((folder / "dist").glob("*.whl"))


def tests_pass(root: Path) -> list[str]:
    """The wheel tests and the contracts of the public API pass, and ``make check`` is clean."""
    names = ("test_wheel.py", "test_public_api.py", "test_schemas.py", "test_error_codes.py")
    tests = [f"tests/contracts/{name}" for name in names]
    return [
        *tried([sys.executable, "-m", "pytest", "-q", "-m", "", *tests], root),
        *tried(["make", "check"], root),
    ]


def docs_build(root: Path) -> list[str]:
    """``make docs`` builds the site."""
    has_site = (root / "docs" / "conf.py").is_file()
    return (
        tried(["make", "docs"], root) if has_site else ["docs/conf.py is missing: there is no site to build"]
    )


def installs(root: Path) -> list[str]:
    """The wheel, installed after torch in an empty environment, takes little room and runs the demo."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        wheel = build(root, work)
        said([sys.executable, "-m", "venv", "env"], work)
        pip = [str(work / "env/bin/pip"), "install", "--quiet"]
        said([*pip, TORCH], work)
        said([*pip, f"{wheel}[demo]"], work)
        size = sum(path.lstat().st_size for path in (work / "env").rglob("*")) / 1e6
        print(f"  {size:.0f} MB")
        run = [str(work / "env/bin/sorites"), "run", "demo", "--limit", "6", "--out", "run"]
        too_large = [f"the environment takes {size:.0f} MB, expected at most {MAX_MEGABYTES}"]
        return [*(too_large if size > MAX_MEGABYTES else []), *tried(run, work)]


def said(command: Sequence[str], where: Path) -> str:
    """Return what a program prints.

    Raises:
        SystemExit: It failed.
    """
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(command, cwd=where, env=env, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {(done.stderr or done.stdout).strip()[-600:]}")
    return done.stdout


def tried(command: Sequence[str], where: Path) -> list[str]:
    """Return what went wrong when a program ran."""
    try:
        said(command, where)
    except SystemExit as error:
        return [str(error)]
    return []


CHECKS: tuple[Check, ...] = (
    versions,
    clean_tree,
    unused_tag,
    files_there,
    schemas_unchanged,
    wheel_builds,
    docs_build,
)


def check(root: Path, checks: Sequence[Check]) -> int:
    """Run checks, print each with what does not hold, and return how many failed."""
    failed = 0
    for one in checks:
        try:
            wrong = one(root)
        except SystemExit as error:
            wrong = [str(error)]
        failed += bool(wrong)
        print(f"{'FAILS' if wrong else 'holds'}  {(one.__doc__ or '').strip().splitlines()[0]}")
        for line in wrong:
            print(f"       {line}")
    return failed


def write_version(root: Path, version: str, today: str) -> None:
    """Write a version and its date into all files that name it; "Unreleased" becomes its section.

    Raises:
        SystemExit: It is no version, or a file does not name one where it should.
    """
    if not VERSION.fullmatch(version):
        raise SystemExit(f"expected a version such as 1.0.0, got {version!r}")
    changes = {
        "pyproject.toml": ((r'(?m)^version = "[^"]*"$', f'version = "{version}"'),),
        "src/sorites/__init__.py": ((r'(?m)^__version__ = "[^"]*"$', f'__version__ = "{version}"'),),
        "CITATION.cff": (
            (r"(?m)^version: .*$", f"version: {version}"),
            (r"(?m)^date-released: .*$", f"date-released: {today}"),
        ),
        "CHANGELOG.md": ((r"(?m)^## Unreleased$", f"## {version} ({today})"),),
    }
    texts = {file: (root / file).read_text(encoding="utf-8") for file in changes}
    for file, rules in changes.items():
        for pattern, replacement in rules:
            texts[file], count = re.subn(pattern, replacement, texts[file], count=1)
            if not count:
                raise SystemExit(f"{file} has no line that matches {pattern}")
    for file, text in texts.items():
        (root / file).write_text(text, encoding="utf-8")


def main(words: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Run the checklist; return 1 if something does not hold."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.release", description="The checklist of a release."
    )
    parser.add_argument("--version", metavar="X.Y.Z", help="write this version into all files first")
    parser.add_argument(
        "--tests", action="store_true", help="also run make check, the wheel tests and the contracts"
    )
    parser.add_argument(
        "--install", action="store_true", help="also install the wheel into an empty environment"
    )
    options = parser.parse_args(words)
    if options.version:
        write_version(root, options.version, datetime.date.today().isoformat())
    further = [*([tests_pass] if options.tests else []), *([installs] if options.install else [])]
    failed = check(root, [*CHECKS, *further])
    print(f"{failed} of {len(CHECKS) + len(further)} do not hold" if failed else "everything holds")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
