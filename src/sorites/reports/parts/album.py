"""The thumbnails of a section, each made once."""

from __future__ import annotations

from dataclasses import dataclass, field

from sorites.core import CLEAN
from sorites.reports.parts.thumbnails import data_uri
from sorites.reports.view import View


@dataclass
class Album:
    """Thumbnails as data URIs, each made once, until the allowance of bytes is used up."""

    view: View
    left: int
    uris: dict[tuple[str, str, str, float], str | None] = field(default_factory=dict)

    def thumbnail(self, run_id: str, sample_id: str, shift: str, severity: float) -> str | None:
        """Return the thumbnail of a picture, or None where no run can make it again."""
        key = (run_id, sample_id, shift if severity else CLEAN, severity)
        if key not in self.uris:
            picture = self.view.picture(*key)
            self.uris[key] = None if picture is None else data_uri(picture)
        self.left -= len(self.uris[key] or "")
        return self.uris[key]
