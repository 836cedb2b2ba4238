"""Provenance in the files of generated images: XMP that says that a model made the image, and from what.

The digital source type is that of IPTC for media made by a trained model. Nothing depends on the time, so
equal images have equal files.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any
from xml.sax.saxutils import escape

from sorites.core.samples import ImageU8

SOURCE_TYPE = "http://cv.iptc.org/newscodes/digitalsourcetype/trainedAlgorithmicMedia"
JPEG_QUALITY = 95
# The name under which PNG files keep XMP.
PNG_XMP = "XML:com.adobe.xmp"
_PACKET = """<?xpacket begin="\ufeff" id="W5M0MpCehiHzreSzNTczkc9d"?>
<x:xmpmeta xmlns:x="adobe:ns:meta/">
 <rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">
  <rdf:Description rdf:about=""
    xmlns:dc="http://purl.org/dc/elements/1.1/"
    xmlns:xmp="http://ns.adobe.com/xap/1.0/"
    xmlns:Iptc4xmpExt="http://iptc.org/std/Iptc4xmpExt/2008-02-29/">
   <xmp:CreatorTool>Sorites</xmp:CreatorTool>
   <Iptc4xmpExt:DigitalSourceType>{kind}</Iptc4xmpExt:DigitalSourceType>
   <dc:description><rdf:Alt><rdf:li xml:lang="x-default">{text}</rdf:li></rdf:Alt></dc:description>
  </rdf:Description>
 </rdf:RDF>
</x:xmpmeta>
<?xpacket end="w"?>"""


def xmp_packet(facts: Mapping[str, Any]) -> bytes:
    """Return an XMP packet with facts as JSON in the description."""
    text = json.dumps(dict(facts), sort_keys=True, ensure_ascii=False)
    return _PACKET.format(kind=SOURCE_TYPE, text=escape(text)).encode()


def encode_image(image: ImageU8, kind: str, facts: Mapping[str, Any] | None = None) -> bytes:
    """Encode an image as JPEG or PNG, with provenance in its metadata if facts are given."""
    from PIL import Image
    from PIL.PngImagePlugin import PngInfo

    buffer, options = io.BytesIO(), dict[str, Any](format="PNG")
    if kind == "jpg":
        options = {"format": "JPEG", "quality": JPEG_QUALITY}
        if facts is not None:
            options["xmp"] = xmp_packet(facts)
    elif facts is not None:
        options["pnginfo"] = PngInfo()
        options["pnginfo"].add_itxt(PNG_XMP, xmp_packet(facts).decode())
    Image.fromarray(image).save(buffer, **options)
    return buffer.getvalue()
