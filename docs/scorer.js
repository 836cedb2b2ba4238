"use strict";

// How the search of the site ranks pages: those of questions first, then pages that explain, then lists and history.
const FIRST = ["generated/questions/"];
const LATE = ["generated/questions", "generated/verbs", "generated/changelog", "generated/shifts", "generated/metrics",
  "generated/schemas", "generated/scorers", "generated/suites", "fidelity", "design", "trust", "errors"];

var Scorer = {
  score: (result) => {
    const [page, , , , score] = result;
    if (FIRST.some((start) => page.startsWith(start))) return score + 8;
    return LATE.some((start) => page === start || page.startsWith(`${start}/`)) ? score / 2 : score;
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
