"""prysm, our oracle, asks the retired pkg_resources for its own version; the standard library knows it as well."""

import importlib.metadata
import sys
import types

if "prysm" not in sys.modules:
    asked = types.ModuleType("pkg_resources")
    asked.get_distribution = importlib.metadata.distribution
    sys.modules.setdefault("pkg_resources", asked)
