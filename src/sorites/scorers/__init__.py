"""Outputs in, strangeness out: how unlike its training pictures does a model find this one?"""

from sorites.scorers import logits as logits
