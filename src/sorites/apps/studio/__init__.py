"""The studio: images on a screen, photographed under lamps by a camera, straightened and kept as
ImageNet-ES is published.

Baek et al., "Unexplored Faces of Robustness and Out-of-Distribution", CVPR 2024, supplement, section 1.
"""
