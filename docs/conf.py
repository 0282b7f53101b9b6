"""How the site is built: ``make docs``. Nothing is fetched, neither here nor by the pages.

Environment:
    ADVECT_DOCS_GALLERY: which scripts of the gallery run, a regular expression on their paths; all by
        default, 0 for none: a quick look at pages.
"""

import os
import sys
import warnings
from pathlib import Path

os.environ.setdefault(
    "OMP_NUM_THREADS", "1"
)  # scripts are small, and threads of several wait for each other
HERE = Path(__file__).parent
GALLERY = os.environ.get("ADVECT_DOCS_GALLERY", "") or r"\.py$"
sys.path[:0] = [str(HERE / "_site"), str(HERE.parent / "src")]

import advect  # noqa: E402

project = "advect"
author = "the authors of advect"
release = version = advect.__version__
language = "en"
smartquotes = False  # --option must stay --option

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
    # of docs/_site:
    "formulas",
    "markdown",
    "made",
    "names",
    "outputs",
    "properties",
]
exclude_patterns = ["_site", "_made", "_static", "gallery"]

# Markdown: the guides read the same on a code host. Anchors of headings are those that hosts make.
myst_enable_extensions = ["dollarmath", "deflist", "attrs_block", "colon_fence"]
myst_heading_anchors = 4
myst_links_external_new_tab = False

# Reference: docstrings are in Google style; members come as they stand in the file.
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autoclass_content = "class"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False
napoleon_custom_sections = [("Attributes", "params_style")]
add_module_names = False
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
toc_object_entries_show_parents = "hide"
viewcode_line_numbers = True
modindex_common_prefix = ["advect."]

SECTIONS = [
    "distances",
    "flows",
    "functionals",
    "dynamics",
    "maps",
    "applications",
    "questions",
    "stories",
]
sphinx_gallery_conf = {
    "examples_dirs": "gallery",
    "gallery_dirs": "auto_gallery",
    "filename_pattern": GALLERY,
    "plot_gallery": GALLERY != "0",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "write_computation_times": False,
    "min_reported_time": 10_000,  # seconds: a time that is measured here says nothing elsewhere
    "remove_config_comments": True,
    "doc_module": ("advect",),
    "reference_url": {"advect": None},
    "image_scrapers": ("scraper.scrape",),
    "capture_repr": (),
    "subsection_order": [f"gallery/{name}" for name in SECTIONS],
    "within_subsection_order": "FileNameSortKey",
}
warnings.filterwarnings("ignore", message=".*non-interactive.*")  # figures are saved, not shown

html_theme = "furo"
html_title = f"advect {release}"
html_static_path = ["_static"]
html_extra_path = ["_made"]  # the page of the landing page's flow, and notebooks
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_search_scorer = str(HERE / "_static" / "scorer.js")
html_math_renderer = "outlines"
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
html_theme_options = {
    "navigation_with_keys": True,
    "light_css_variables": {
        "color-brand-primary": "#0b5fa5",
        "color-brand-content": "#0b5fa5",
    },
    "dark_css_variables": {
        "color-brand-primary": "#7cc0f4",
        "color-brand-content": "#7cc0f4",
    },
}
copybutton_selector = "div.highlight-python pre, div.highlight-default pre, div.highlight-sh pre, div.highlight-console pre"
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
