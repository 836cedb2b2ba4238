"""The inputs of every kind of model, which the contracts use too."""

from tests.contracts.conftest import example

__all__ = ["example"]
