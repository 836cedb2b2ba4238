"""Models in the formats of other libraries: ``hf:DIR``, ``openvino:PATH``, ``tflite:PATH``."""
