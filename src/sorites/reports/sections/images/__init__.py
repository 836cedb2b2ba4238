"""Sections that show images: contact sheets, first failures, lost objects, Grad-CAM maps."""
