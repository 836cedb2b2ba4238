"""Image-text models that judge how far a picture moved: ``open_clip:NAME@WEIGHTS``, ``python:module:name``, ``cifar``,
``toy``."""

from sorites.referees import cifar as cifar
from sorites.referees import open_clip as open_clip
from sorites.referees import python as python
from sorites.referees import toy as toy
