"use strict";

/* What a reader types, as `clean` writes the training text. The rules come from tokenmill/normalize.py
   (publish/cleaning.py); a test compares the results. */

/** A text that somebody typed, as it was cleaned; as it stands, if nothing would be left of it.
    @param rules patterns and spellings; null leaves the text as it is */
function asCleaned(text, rules) {
  if (rules === null) return text;
  const inner = strip(text);
  const start = text.indexOf(inner);
  const ends = [text.slice(0, start), text.slice(start + inner.length)].map((end) => withoutInvisible(end, rules));
  const cleaned = ends[0] + normalize(inner, rules) + ends[1];
  return strip(cleaned) ? cleaned : text;
}

/** Every line break as one line feed, every space as one of ASCII, and nothing invisible but joiners within words. */
function withoutInvisible(text, { breaks, spaces, invisible, joiners }) {
  for (const [pattern, replacement] of [[breaks, "\n"], [spaces, " "], [invisible, ""], ...joiners]) {
    text = text.replace(new RegExp(pattern, "gv"), replacement);
  }
  return text;
}

function normalize(text, rules) {
  text = withoutInvisible(text, rules).normalize("NFC");
  text = text.replace(/[^\0-\x7f]/gu, (one) => rules.folds[one] ?? one);
  for (const [pattern, replacement] of rules.marks) {
    text = text.replace(new RegExp(pattern, "gv"), replacement).normalize("NFC");
  }
  text = text.replace(new RegExp(rules.foreign, "gv"), "\x1f");
  text = text.replace(/(\n[ \t]*)\x1f[ \t\x1f]*/g, "$1").replaceAll("\x1f", " ");
  text = text.replace(/[ \t]+\n/g, "\n").replace(/([^ \t\n])(?:[ \t]{2,}|\t)/g, "$1 ").replace(/\n{3,}/g, "\n\n");
  return text.replace(/^[ \t\n]+|[ \t\n]+$/g, "");
}
