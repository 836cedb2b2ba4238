"""prysm, our oracle, asks the retired pkg_resources for its own version; the standard library knows
it as well.
"""

import importlib
import importlib.metadata
import sys
import types

if "pkg_resources" not in sys.modules:
    asked = types.ModuleType("pkg_resources")
    asked.get_distribution = importlib.metadata.distribution
    sys.modules["pkg_resources"] = asked
    importlib.import_module("prysm")
    del sys.modules["pkg_resources"]
