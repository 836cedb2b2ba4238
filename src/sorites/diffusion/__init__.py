"""Diffusion models: load a pipeline, attach sliders (adapters with a severity), sample images and classify.

Sources and models use this package. Torch and diffusers are imported only when something is loaded or
sampled.
"""
