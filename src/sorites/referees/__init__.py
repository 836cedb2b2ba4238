"""Who judges how far a picture has moved: image-text models, ``open_clip:NAME@WEIGHTS``, ``python:module:name``, ``cifar``."""

from sorites.referees import cifar as cifar
from sorites.referees import open_clip as open_clip
from sorites.referees import python as python
