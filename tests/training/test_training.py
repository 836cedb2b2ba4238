"""What ``sorites.training`` names, without importing torch until it is asked for."""

import subprocess
import sys

import pytest

from sorites import training


def test_every_name_is_there():
    assert training.__all__ == sorted(training.__all__)
    assert all(getattr(training, name).__name__ == name for name in training.__all__)
    assert set(training.__all__) <= set(dir(training))
    with pytest.raises(AttributeError, match="'OpticAugment'"):
        training.OpticAugment  # noqa: B018


def test_without_torch_the_extra_is_named():
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import sorites.training\n"
        "from sorites.core.errors import MissingExtra\n"
        "try: sorites.training.OpticsAugment\n"
        "except MissingExtra as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (
        done.stdout == "sorites.training.OpticsAugment needs more than the core install. Type: pip install"
        " 'sorites[train]'\n"
    ), done.stderr
