"""How Sphinx builds the site: ``make docs``, that is ``python -m tools.site``."""

import importlib.metadata
from pathlib import Path

project = "Sorites"
author = "The Sorites authors"
release = importlib.metadata.version("sorites")
copyright = "The Sorites authors"

extensions = ["myst_nb"]
exclude_patterns = ["**/.ipynb_checkpoints"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
# Notebooks are executed by the tests; the widgets and the mathematics of others would be fetched from a CDN.
nb_execution_mode = "off"
nb_ipywidgets_js = {}
# Quoted output and fragments of JSON have no lexer.
suppress_warnings = ["misc.highlighting_failure"]

html_theme = "pydata_sphinx_theme"
html_title = "Sorites"
html_show_sourcelink = False
html_copy_source = False
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_search_scorer = str(Path(__file__).with_name("scorer.js"))  # Sphinx opens it from the current folder
html_sidebars = {"index": [], "why": [], "start": [], "search": []}
html_theme_options = {
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "show_nav_level": 1,
    "header_links_before_dropdown": 7,
    "navbar_end": ["theme-switcher"],
    "navbar_persistent": ["search-button"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
