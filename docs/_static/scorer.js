// Where a word is in the text of many pages, guides come before gallery entries, and these before commands.
"use strict";
var Scorer = {
  score: ([docname, , anchor, , score]) => {
    if (anchor) return score; // a name of the reference, or a section
    if (!docname.includes("/")) return score + (docname === "changelog" ? -1 : 3);
    return score + (docname.startsWith("auto_gallery/") ? 1 : 0);
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
