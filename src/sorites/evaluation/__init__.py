"""From a suite to the table: plan, tasks, shards, and the facts and scores added to a finished run.

This package finds plug-ins only through their registries; it does not print, draw or parse a command line.
"""
