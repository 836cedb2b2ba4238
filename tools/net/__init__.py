"""The net under a refactoring: a hash of everything that Sorites computes, by name, to be taken
before and compared after.

    python -m tools.net --out digests.json         before: writes every hash
    python -m tools.net --against digests.json     after: names every hash that differs, is new or
        is gone; exit code 1 if any
                                                   (what is in renames.toml is renamed first;
                                                       --words compares texts too)
    python -m tools.net --only shifts/coma ...     only what starts so

It asks the code only by names that a user may know: the registries and look-ups of
``sorites.core``, ``sorites.run``, ``read``, ``build`` and ``report``, and the command line. Modules
may move and be renamed beneath it. What begins with ``words/`` is text and drawings that may be
changed on purpose; everything else is numbers.

Hashes compare only on one machine with one set of libraries: a vector unit or a BLAS of another
make moves last bits.
"""
