"""Measure how far a picture moved. Modules without an underscore register measures of a picture against its own clean one; the
others serve the distance to familiar pictures: the decomposition into meaning and appearance, nearest neighbours,
levels, filters."""

from sorites.measures import exposure as exposure
from sorites.measures import haze as haze
from sorites.measures import lpips as lpips
from sorites.measures import pixels as pixels
