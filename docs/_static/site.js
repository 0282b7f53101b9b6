// From disk a browser may not read other pages, so that search results come without their first lines there.
"use strict";
if (window.location.protocol === "file:") DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
