/* Where an answer stands in the training text. Only the page of `tokenmill demo` has it: its server searches, and writes
   what it found as the report does, all text escaped (reports/templates/traced.html). */

async function askForTrace(text) {
  const response = await fetch("trace", { method: "POST", body: text }).catch(() => {
    throw new Error(`The training text cannot be searched; ${data.unreachable}.`);
  });
  const answer = await response.text();
  if (!response.ok) throw new Error(answer);
  return answer;
}

below.push((turn, place) => {
  if (!turn.text || data.trace !== turn.epoch.tokenizer) return;
  const button = make("button", { type: "button", class: "talk-trace", text: "Where does it stand in the training text?", parent: place });
  const found = make("div", { role: "status", tabindex: "-1", parent: place });
  const look = async () => {
    found.replaceChildren();
    try {
      found.innerHTML = await askForTrace(turn.text);
      if (document.activeElement === button) found.focus({ preventScroll: true }); // or the focus would be lost
      button.remove();
    } catch (error) {
      found.append(refusal(error.message));
      button.addEventListener("click", look, { once: true });
    }
  };
  button.addEventListener("click", look, { once: true });
});
