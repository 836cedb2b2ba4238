"""Read files of others: one function per kind of file. Limits stand first, names are taken literally, and whatever is
wrong with a file is one ``SoritesError`` that names it."""
