"""From a suite to the table: plan, units of work, shards, and the facts and scores added to a finished run.

The pipeline knows plug-ins by their registries alone, never by name; it does not print, draw or
parse a command line.
"""
