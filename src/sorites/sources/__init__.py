"""The sources: one reader per dataset. Each yields samples whose pictures are decoded when they are asked for."""

from sorites.sources import cifar as cifar
from sorites.sources import cns_bench as cns_bench
from sorites.sources import coco as coco
from sorites.sources import composites as composites
from sorites.sources import context as context
from sorites.sources import focus as focus
from sorites.sources import folder as folder
from sorites.sources import imagenet_es as imagenet_es
from sorites.sources import is_ood as is_ood
from sorites.sources import nuimages as nuimages
from sorites.sources import parquet as parquet
from sorites.sources import slider as slider
from sorites.sources import stamps as stamps
from sorites.sources import stamps_ood as stamps_ood
from sorites.sources import webdataset as webdataset
from sorites.sources import yolo as yolo
