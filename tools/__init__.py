"""Tools for people who change Sorites; no part of the package."""
