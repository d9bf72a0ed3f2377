/* Where an answer stands in the training text. Only the page of `tokenmill demo` has it: its server searches. */

/** How often a phrase stands there. */
function places({ count, documents }) {
  return counted(count, "place") + (documents === count ? "" : ` in ${counted(documents, "document")}`);
}

/** A phrase with its passages. */
function showSpan(span, list) {
  const item = make("li", { parent: list });
  make("p", { class: "faded", text: `${counted(span.words, "word")}, ${places(span)}`, parent: item });
  for (const { before, text, after, source, document: number } of span.passages) {
    const passage = make("p", { class: "passage", dir: "auto", text: visible(before), parent: item });
    make("mark", { text: visible(text), parent: passage });
    passage.append(visible(after), "\n");
    make("span", { class: "faded", text: `${visible(source)}, document ${number.toLocaleString("en")}`, parent: passage });
  }
}

/** The answer with its phrases marked, and the phrases, the rarest first. */
function showTrace({ words, copied, spans, pieces }, place) {
  const rarest = spans.length ? `, the rarest phrase at ${counted(spans[0].count, "place")}` : "";
  make("p", { class: "talk-note", text: `In the training text: ${copied.toLocaleString("en")} of ${counted(words, "word")}${rarest}.`, parent: place });
  if (!spans.length) return;
  const whole = make("p", { class: "text traced", dir: "auto", parent: place });
  for (const [text, span] of pieces) {
    if (span) make("mark", { text: visible(text), title: places(spans[span - 1]), parent: whole });
    else whole.append(visible(text));
  }
  const list = make("ol", { class: "spans", parent: place });
  for (const span of spans) showSpan(span, list);
}

async function askForTrace(text) {
  const response = await fetch("trace", { method: "POST", body: text }).catch(() => {
    throw new Error(`The training text cannot be searched; ${data.unreachable}.`);
  });
  if (!response.ok) throw new Error(await response.text());
  const found = await response.json();
  if (found.problem) throw new Error(found.problem);
  return found;
}

below.push((turn, place) => {
  if (!turn.text || data.trace !== turn.epoch.tokenizer) return;
  const button = make("button", { type: "button", class: "talk-trace", text: "Where does it stand in the training text?", parent: place });
  const found = make("div", { role: "status", tabindex: "-1", parent: place });
  const look = async () => {
    found.replaceChildren();
    try {
      showTrace(await askForTrace(turn.text), found);
      if (document.activeElement === button) found.focus({ preventScroll: true }); // or the focus would be lost
      button.remove();
    } catch (error) {
      found.append(refusal(error.message));
      button.addEventListener("click", look, { once: true });
    }
  };
  button.addEventListener("click", look, { once: true });
});
