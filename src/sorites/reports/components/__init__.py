"""Building blocks of sections: markup, charts, dot charts, heat maps and images."""
