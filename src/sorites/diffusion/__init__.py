"""Images from a user's own diffusion model: its pipeline, adapters on it that turn one object up
(sliders), and the sampler.

A low room like optics: sources and models may use it. Torch and diffusers are imported only when
something is loaded or drawn.
"""
