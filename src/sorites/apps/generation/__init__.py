"""Nuisance shifts made on a user's own diffusion model: sliders are trained, images drawn along
them, and both are checked.
"""
