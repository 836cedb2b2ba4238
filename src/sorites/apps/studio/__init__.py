"""The studio: photograph images on a screen under controlled lamps, and store them in the ImageNet-ES layout.

Baek et al., "Unexplored Faces of Robustness and Out-of-Distribution", CVPR 2024, supplement, section 1.
"""
