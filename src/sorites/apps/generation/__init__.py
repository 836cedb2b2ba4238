"""Nuisance shifts made on a user's own diffusion model: sliders are trained, pictures drawn along
them, and both are checked.
"""
