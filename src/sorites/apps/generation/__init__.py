"""Generate nuisance shifts with a diffusion model: train sliders, draw images along them, and check both."""
