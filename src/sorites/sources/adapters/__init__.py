"""Sources in the formats of other libraries: ``hf:DIR`` and ``maite:module:object``."""
