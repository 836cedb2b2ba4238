"""Models in the formats of other libraries: ``hf:DIR``, ``openvino:PATH``, ``maite:module:object``."""
