"use strict";

/* The page's part of talking: two columns of conversation, what is shown of them, and where weights come from.

   Text of the model, the corpus and the reader is put into the page as text, never as markup. */

const MOST_MODELS = 2; // that a column holds: the one that writes and the one before it
const MOST_TOKENS = 1024; // of an answer
const LOSSES = [0.25, 1, 2, 4]; // nats at which a token's colour changes
const AUTOMATIC = 20_000_000; // bytes of weights up to which they are read, and the epoch before reads an answer, unasked

const data = JSON.parse(document.getElementById("talk-data").textContent);
const byId = (name) => document.getElementById(`talk-${name}`);

/** A new element. */
function make(tag, { text, parent, ...attributes } = {}) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  parent?.append(element);
  return element;
}

const JOINED = "[^\\0-\\x7f\\p{Cc}\\p{Cf}\\p{Cs}\\p{Z}]"; // what a joiner may stand between
const INVISIBLE = new RegExp(`(?!(?<=${JOINED})[\\u200c\\u200d]${JOINED})[\\p{Cc}\\p{Cf}\\p{Cs}\\p{Zl}\\p{Zp}]`, "gu");

/** Text in which every invisible character but space, tab and line feed is a sign or its code, by the rule of `visible` in
    tokenmill/words/units.py. */
function visible(text) {
  return text.replace(INVISIBLE, (one) => {
    const code = one.codePointAt(0);
    if (one === "\t" || one === "\n") return one;
    return code < 0x20 ? String.fromCodePoint(0x2400 + code) : `⟨U+${code.toString(16).toUpperCase().padStart(4, "0")}⟩`;
  });
}

/** A part of a text as `visible` writes it between what stands before and after it. */
function visibleBetween(before, text, after) {
  const left = [...before].at(-1) ?? "";
  const right = [...after][0] ?? "";
  const shown = visible(left + text + right);
  return shown.slice(visible(left).length, shown.length - visible(right).length);
}

/** A token by itself, its white space visible too. */
function spelled(text) {
  return visible(text).replaceAll(" ", "␣").replaceAll("\n", "↵").replaceAll("\t", "⇥") || "␀";
}

function percent(share) {
  return share < 0.0005 ? "<0.1 %" : `${(100 * share).toFixed(1)} %`;
}

/** A number with its noun. */
function counted(count, noun) {
  return `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
}

/** A sentence about what went wrong, with the commands that it has between backticks as code. */
function refusal(sentence) {
  const place = make("p", { class: "talk-refused", role: "alert" });
  visible(sentence).split("`").forEach((part, index) => place.append(index % 2 ? make("code", { text: part }) : part));
  return place;
}

/** Parts that lie beside the page: files that call `tokenmillPart` with the text of the part, or with a sentence why there
    is none. A script is read from a disk, too, where `fetch` is not. */
const arrived = new Map();
window.tokenmillPart = (name, text, problem) => arrived.set(name, { text, problem });

function fromFile(name) {
  const address = `${data.folder}/${name}.js`;
  return new Promise((resolve, reject) => {
    const script = make("script", { src: address });
    script.onload = () => {
      const { text, problem } = arrived.get(name) ?? {};
      arrived.delete(name);
      script.remove();
      if (problem) reject(new Error(problem));
      else if (text === undefined) script.onerror();
      else resolve(text);
    };
    script.onerror = () => reject(new Error(`${address} cannot be read; ${data.unreachable}.`));
    document.head.append(script);
  });
}

/** The text of a part: of an element of this page, or of a file beside it. */
async function readPart(name) {
  const element = document.getElementById(name);
  return element ? element.textContent : fromFile(name);
}

/** Base64 as bytes. */
function bytesOf(base64) {
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes.buffer;
}

/** An epoch of a model that can be asked. */
class Epoch {
  /** @param number of the epoch in its run; null for a model that is no run
      @param name for people
      @param part that describes it: its tensors, its tokenizer, and the parts of its weights
      @param former the epoch before it; null if there is none */
  constructor({ number, name, part }, former) {
    Object.assign(this, { number, name, part, former });
    this.title = number === null ? "this model" : `epoch ${number}`;
  }

  /** Read what the epoch is, before anything else is asked of it. */
  async describe() {
    if (this.about === undefined) Object.assign(this, JSON.parse(await readPart(this.part)));
  }

  /** Whether its weights are so few that they are read, and read an answer of the next epoch, unasked. */
  get isSmall() {
    return this.about?.bytes <= AUTOMATIC;
  }

  /** The parts of its weights, each with its place. */
  async *weights() {
    let at = 0;
    for (const name of this.parts) {
      const bytes = bytesOf(await readPart(name));
      const { byteLength } = bytes; // who takes them may send them away
      yield { bytes, at };
      at += byteLength;
    }
    if (at !== this.about.bytes) throw new Error(`The weights of ${this.name} are not whole; make the page again.`);
  }
}

/** The epochs of all models, in their order. */
const models = data.models.map(({ label, epochs }) => {
  let former = null;
  return { label, epochs: epochs.map((one) => (former = new Epoch(one, former))) };
});
const epochs = models.flatMap((model) => model.epochs);

/** An error of a worker, whose own words are the browser's. */
function notRunning(why) {
  return new Error(`The models cannot run in this browser: ${why}.`);
}

/** A worker and the models that it holds. */
class ModelWorker {
  #worker = null;
  #calls = new Map(); // by number: what takes the result, the problem, or news
  #number = 0; // of the last call
  #stops = 0;
  #loading = Promise.resolve();
  #tokenizers = new Set(); // names
  #epochs = []; // those with weights there, the last used is last

  /** Let the worker do a task after all others, and wait for its result; `hear` gets its news. */
  call(task, { hear = null, transfer = [] } = {}) {
    this.#worker ??= this.#begin();
    this.#number += 1;
    this.#worker.postMessage({ number: this.#number, ...task }, transfer);
    return new Promise((resolve, reject) => this.#calls.set(this.#number, { resolve, reject, hear }));
  }

  #begin() {
    const source = new Blob([byId("worker").textContent], { type: "text/javascript" });
    const worker = new Worker(URL.createObjectURL(source));
    worker.onmessage = ({ data: { number, news, result, problem } }) => {
      const { resolve, reject, hear } = this.#calls.get(number);
      if (news) return hear(news);
      this.#calls.delete(number);
      if (problem === undefined) resolve(result);
      else reject(notRunning(problem));
    };
    worker.onerror = ({ message }) => {
      worker.terminate();
      this.#worker = null;
      this.#tokenizers.clear();
      this.#epochs = [];
      const error = notRunning(message || "it starts no worker for this page");
      for (const { reject } of this.#calls.values()) reject(error);
      this.#calls.clear();
    };
    return worker;
  }

  /** Bring an epoch's weights to the worker, unless they are there; one epoch after the other. Return whether nothing was
      stopped meanwhile. */
  async load(epoch, progress) {
    const stops = this.#stops;
    const loaded = this.#loading.then(() => this.#load(epoch, progress));
    this.#loading = loaded.catch(() => {});
    await loaded;
    return this.#stops === stops;
  }

  async #load(epoch, progress) {
    await epoch.describe();
    const { part, about, tokenizer } = epoch;
    if (!this.#tokenizers.has(tokenizer)) {
      await this.call({ task: "tokenizer", name: tokenizer, text: await readPart(tokenizer) });
      this.#tokenizers.add(tokenizer);
    }
    if (!this.#epochs.includes(epoch)) {
      while (this.#epochs.length >= MOST_MODELS) await this.call({ task: "forget", epoch: this.#epochs.shift().part });
      await this.call({ task: "forget", epoch: part }); // what came of it before reading failed
      for await (const { bytes, at } of epoch.weights()) {
        progress((at + bytes.byteLength) / about.bytes);
        await this.call({ task: "weights", epoch: part, about, tokenizer, at, bytes }, { transfer: [bytes] });
      }
    }
    this.#epochs = [...this.#epochs.filter((one) => one !== epoch), epoch];
  }

  /** Stop everything that the worker was asked to do, and what waits for weights. */
  stop() {
    this.#stops += 1;
    this.#worker?.postMessage({ task: "stop", number: this.#number });
  }
}

/** A conversation with one epoch. */
class Column {
  constructor(name) {
    this.place = make("div", { class: "talk-column", parent: byId("columns") });
    this.log = make("div", { role: "group", "aria-label": name, parent: this.place });
    this.panel = make("div", { class: "talk-panel", role: "group", "aria-label": `${name}: the likeliest tokens`, parent: byId("panels") });
    this.worker = new ModelWorker();
    this.epoch = null;
    this.turns = [];
    this.messages = [];
  }

  /** Talk to another epoch from now on; null hides the column. */
  choose(epoch) {
    this.epoch = epoch;
    this.place.hidden = epoch === null;
    this.clear();
    if (epoch !== null) this.#prepare(epoch).catch(() => {}); // `ask` tells
  }

  /** Read an epoch's weights, if they are few, before anything is asked. */
  async #prepare(epoch) {
    await epoch.describe();
    if (epoch.isSmall && epoch === this.epoch) await this.worker.load(epoch, () => {});
  }

  /** End the conversation; what the worker still says of it is not heard. */
  clear() {
    this.worker.stop();
    this.turns = [];
    this.messages = [];
    this.log.replaceChildren();
    this.panel.replaceChildren();
  }

  /** Ask, and wait for the end of the answer. */
  async ask(prompt, kind, sampling) {
    this.worker.stop(); // a comparison
    const turn = new Turn(this, prompt, kind, sampling);
    this.turns.push(turn);
    try {
      const progress = (share) => turn.note(`reading ${visible(turn.epoch.name)}: ${percent(share)}`);
      const goesOn = await this.worker.load(turn.epoch, progress);
      turn.note(goesOn ? "" : "Stopped before the first token.");
      if (!goesOn) return;
      const messages = [...(kind === "text" ? [] : this.messages), { role: "user", content: prompt }];
      const task = { task: "write", epoch: turn.epoch.part, kind, sampling, messages, cleaning: data.cleaning };
      const answer = await this.#call(turn, task);
      if (!this.turns.includes(turn)) return; // a new conversation
      if (kind === "user" && answer.text) this.messages = [...messages, { role: "assistant", content: answer.text }];
      turn.close(answer);
    } catch (error) {
      turn.fail(error.message);
    }
  }

  /** What the epoch before thinks of a complete turn. */
  async compare(turn) {
    const epoch = turn.epoch.former;
    if (epoch === null || turn.isCompared) return;
    turn.isCompared = true;
    try {
      let goesOn = await this.worker.load(epoch, () => {});
      if (goesOn) {
        const candidates = turn.thoughts.map(({ likeliest }) => likeliest.map(({ id }) => id));
        const ids = turn.pieces.map(({ id }) => id);
        const task = { task: "compare", epoch: epoch.part, ids, length: turn.length, candidates };
        goesOn = !(await this.#call(turn, task)).stopped;
      }
      if (!goesOn) turn.forgetComparison();
    } catch (error) {
      turn.fail(error.message);
    }
  }

  /** The result of a task; its news go to the turn, as long as that is shown. */
  #call(turn, task) {
    const hear = ({ name, ...news }) => { if (this.turns.includes(turn)) turn[name](news); };
    return this.worker.call(task, { hear });
  }
}

/** What is added below each complete answer: functions of its turn and the place. */
const below = [];

/** A prompt, its answer, and what the model thought of every token of both. */
class Turn {
  constructor(column, prompt, kind, sampling) {
    this.column = column;
    this.epoch = column.epoch;
    this.isFirst = column.turns.length === 0;
    this.asked = { prompt, kind, sampling };
    this.pieces = []; // {id, text, name} of the whole text that the model reads and writes
    this.thoughts = []; // of each piece but the first
    this.earlier = []; // of the epoch before
    this.spans = new Map(); // by the index of their piece
    this.length = 0; // pieces of the prompt
    this.text = null; // the answer without white space at its ends, as the report has it; null until it is complete
    this.isCompared = false; // or is being compared
    const place = make("div", { class: "talk-turn", parent: column.log });
    this.questionPlace = make("p", { class: "talk-asked", dir: "auto", role: "group", "aria-label": "Prompt", text: visible(prompt), parent: place });
    const name = visible(this.epoch.name);
    make("p", { class: "talk-of", text: name, parent: place });
    this.answerPlace = make("p", { class: "talk-words", dir: "auto", role: "group", "aria-label": `Answer of ${name}`, parent: place });
    this.notes = make("p", { class: "talk-note", parent: place });
    this.speed = make("p", { class: "talk-note talk-speed", parent: place });
    for (const group of [this.questionPlace, this.answerPlace]) this.#listen(group);
  }

  note(text) {
    this.notes.textContent = text;
  }

  /** News of the worker: the prompt as tokens. */
  prompt({ pieces, notes, start }) {
    this.pieces = pieces;
    this.length = pieces.length;
    this.note(notes.map(visible).join(" "));
    this.questionPlace.replaceChildren();
    pieces.forEach((piece, index) => {
      if (index >= start && piece.name === null) this.#show(index, this.questionPlace);
    });
  }

  /** News of the worker: more tokens of the answer. */
  words({ pieces, thoughts, tokens, first, seconds }) {
    for (const piece of pieces) {
      this.pieces.push(piece);
      this.#show(this.pieces.length - 1, this.answerPlace);
    }
    for (const thought of thoughts) {
      this.thoughts.push(thought);
      this.#colour(this.thoughts.length);
    }
    const rate = seconds > 0 && tokens > 1 ? `${Math.round((tokens - 1) / seconds)} tokens/s, ` : "";
    this.speed.textContent = `${counted(tokens, "token")}, ${rate}first after ${Math.round(first)} ms`;
    Object.assign(this.speed.dataset, { tokens, first, seconds });
  }

  /** News of the worker: what the epoch before thinks. */
  compared({ thoughts }) {
    this.earlier.push(...thoughts);
    if (this.chosen !== undefined) this.#explain(this.chosen);
  }

  /** Do as if the epoch before had not been asked; it was stopped. */
  forgetComparison() {
    this.earlier = [];
    this.isCompared = false;
  }

  /** Say what went wrong. */
  fail(sentence) {
    this.answerPlace.parentElement.append(refusal(sentence));
  }

  /** The answer is complete: compare it with the report's, unless it was stopped, and look at its least expected token. */
  close({ rest, text, stopped }) {
    this.text = text;
    if (rest) this.answerPlace.insertBefore(document.createTextNode(rest), this.answerPlace.querySelector(".talk-end:last-child"));
    byId("scale").hidden = false;
    const expected = stopped ? null : this.#inReport();
    if (expected === text) {
      this.notes.append(" The same as in the report below.");
    } else if (expected !== null) {
      const place = make("p", { class: "talk-note", parent: this.answerPlace.parentElement });
      make("span", { text: "The report below has, from weights in full precision: ", parent: place });
      make("span", { class: "talk-report", dir: "auto", text: visible(expected), parent: place });
    }
    for (const add of below) add(this, this.answerPlace.parentElement);
    const written = [...this.spans.keys()].filter((index) => index >= this.length && index > 0);
    if (!written.length) return; // a part of a character
    const loss = (index) => this.thoughts[index - 1].loss;
    const least = written.reduce((a, b) => (loss(b) > loss(a) ? b : a));
    this.#choose(least, this.epoch.isSmall);
  }

  /** The report's greedy answer to this prompt; null if it has none that was written in the same way. */
  #inReport() {
    const { prompt, kind, sampling } = this.asked;
    const isSame = sampling.temperature === 0 && sampling.repetition_penalty === 1
      && sampling.max_new_tokens === data.sampling.max_new_tokens && this.isFirst;
    const question = data.questions.find((one) => one.prompt === prompt && one.kind === kind);
    return isSame && question ? question.greedy[this.epoch.part] ?? null : null;
  }

  /** Show a token, unless it is a part of a character that a later one completes. */
  #show(index, group) {
    const { text, name } = this.pieces[index];
    if (!text && name === null) return;
    const span = make("span", { class: text ? "talk-token" : "talk-token talk-end", tabindex: "-1", role: "button", parent: group });
    span.dataset.index = index;
    for (const each of [span.previousElementSibling, span]) if (each) this.#write(each);
    span.setAttribute("aria-label", spelled(text || name));
    if (!group.querySelector("[tabindex='0']")) span.tabIndex = 0;
    this.spans.set(index, span);
    this.#colour(index);
  }

  /** Write a token into its place; what it is beside decides how joiners are shown. */
  #write(span) {
    const { text, name } = this.pieces[span.dataset.index];
    const [before, after] = [span.previousElementSibling, span.nextElementSibling].map(
      (other) => this.pieces[other?.dataset.index]?.text ?? "");
    span.textContent = visibleBetween(before, text || name.replace(/^<\||\|>$/g, ""), after);
  }

  /** Colour a token by its loss, once both are there. */
  #colour(index) {
    const span = this.spans.get(index);
    const thought = this.thoughts[index - 1];
    if (!span || !thought) return;
    const { text, name } = this.pieces[index];
    span.dataset.loss = LOSSES.filter((loss) => thought.loss >= loss).length;
    span.setAttribute("aria-label", `${spelled(text || name)}, probability ${percent(Math.exp(-thought.loss))}, loss ${thought.loss.toFixed(2)}`);
  }

  #listen(group) {
    const indexOf = ({ target }) => Number(target.closest("[data-index]")?.dataset.index ?? NaN);
    const look = (event) => {
      const index = indexOf(event);
      if (this.thoughts[index - 1]) this.#choose(index, this.epoch.isSmall || event.type !== "mouseover");
    };
    for (const kind of ["mouseover", "click", "focusin"]) group.addEventListener(kind, look);
    group.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      const shown = [...group.querySelectorAll("[data-index]")];
      const next = shown[shown.indexOf(event.target) + step];
      if (step && next) {
        event.preventDefault();
        next.focus();
      }
    });
  }

  /** Explain a token; `ask` the epoch before, too. */
  #choose(index, ask) {
    for (const turn of this.column.turns) {
      turn.spans.get(turn.chosen)?.removeAttribute("aria-pressed");
      turn.chosen = undefined;
    }
    this.chosen = index;
    const span = this.spans.get(index);
    for (const each of span.parentElement.querySelectorAll("[tabindex='0']")) each.tabIndex = -1;
    span.tabIndex = 0;
    span.setAttribute("aria-pressed", "true");
    if (ask && this.text !== null) this.column.compare(this);
    this.#explain(index);
  }

  /** The table of the likeliest tokens in place of this one, at this epoch and the one before. */
  #explain(index) {
    const { panel } = this.column;
    const { loss, likeliest } = this.thoughts[index - 1];
    const { id, text, name } = this.pieces[index];
    const earlier = this.earlier[index - 1];
    const { title, former } = this.epoch;
    panel.replaceChildren();
    const head = make("p", { class: "talk-head", parent: panel });
    make("span", { text: "In place of ", parent: head });
    make("code", { text: spelled(text || name), parent: head });
    const then = earlier ? ` (${former.title}: ${earlier.loss.toFixed(2)})` : "";
    make("span", { text: `, loss ${loss.toFixed(2)}${then}, these were likeliest:`, parent: head });
    const table = make("table", { parent: panel });
    const row = make("tr", { parent: make("thead", { parent: table }) });
    for (const text of ["token", title, ...(former === null ? [] : [former.title])]) make("th", { scope: "col", text, parent: row });
    const body = make("tbody", { parent: table });
    likeliest.forEach((each, rank) => {
      const line = make("tr", { class: each.id === id ? "talk-taken" : "", parent: body });
      make("code", { text: spelled(each.text), parent: make("th", { scope: "row", parent: line }) });
      this.#share(line, each.probability);
      if (former !== null) this.#share(line, earlier?.probabilities[rank]);
    });
  }

  #share(line, share) {
    const cell = make("td", { text: share === undefined ? "…" : percent(share), parent: line });
    cell.style.setProperty("--share", share ?? 0);
  }
}

/** The fields of the sampling: name, label, least, most, step; 0 of top-k and 1 of top-p stand for all tokens. */
const FIELDS = [
  ["temperature", "Temperature (0: the likeliest token)", 0, 5, "any"],
  ["top_k", "Top-k (0: all)", 0, 100000, 1],
  ["top_p", "Top-p (1: all)", 0.01, 1, "any"],
  ["repetition_penalty", "Repetition penalty (1: none)", 0.1, 10, "any"],
  ["max_new_tokens", "Length in tokens", 1, MOST_TOKENS, 1],
  ["seed", "Seed", 0, 2 ** 32 - 1, 1],
];

/** The form: what the reader chooses, and the two columns that answer. */
class Talk {
  constructor() {
    this.columns = [new Column("Conversation"), new Column("Conversation beside it")];
    this.#epochs();
    this.#sampling();
    this.#examples();
    byId("form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.ask(byId("prompt").value);
    });
    byId("prompt").addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      byId("form").requestSubmit();
    });
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && !event.isComposing) this.#stop();
    });
    // a field that is refused must be seen; this comes before the browser says why
    byId("sampling").addEventListener("invalid", ({ target }) => { target.closest("details").open = true; }, true);
    this.follower = new ResizeObserver(() => {
      byId("stop").scrollIntoView({ block: "nearest" });
      this.followed = scrollY;
      if (byId("stop").disabled) this.follower.disconnect(); // that was the end of the answer
    });
    window.addEventListener("scroll", () => {
      if (Math.abs(scrollY - this.followed) > 1) this.follower.disconnect(); // the reader scrolled
    }, { passive: true });
    byId("stop").addEventListener("click", () => this.#stop());
    byId("anew").addEventListener("click", () => {
      for (const column of this.columns) column.clear();
    });
    this.kind = data.questions.length && data.questions.every(({ kind }) => kind === "text") ? "text" : "user";
    byId("form").hidden = false;
    byId("before").hidden = true;
  }

  get kind() {
    return document.querySelector("[name=talk-kind]:checked").value;
  }

  set kind(kind) {
    for (const choice of document.querySelectorAll("[name=talk-kind]")) choice.checked = choice.value === kind;
  }

  /** Ask both columns, at the same time; not while an answer comes. */
  async ask(prompt) {
    const { kind } = this;
    if (byId("write").disabled || (kind === "user" && !prompt.trim()) || !byId("form").reportValidity()) return;
    const sampling = Object.fromEntries(FIELDS.map(([name]) => [name, Number(byId(name).value)]));
    sampling.top_k ||= null;
    if (sampling.top_p === 1) sampling.top_p = null;
    byId("prompt").value = "";
    this.#busy(true);
    const asked = this.columns.filter(({ epoch }) => epoch !== null);
    await Promise.all(asked.map((one) => one.ask(prompt, kind, sampling)));
    const ended = asked.flatMap(({ turns }) => turns.slice(-1)).filter(({ text }) => text !== null);
    byId("status").textContent = ended.map(({ epoch, text }) => visible(`${epoch.name}: ${text || "(nothing)"}`)).join("\n");
    this.#busy(false);
  }

  /** While an answer grows, the box stays in the window, until the reader scrolls. A button that is switched off hands its
      focus to the other one; otherwise it would be lost. */
  #busy(isBusy) {
    const [on, off] = isBusy ? [byId("stop"), byId("write")] : [byId("write"), byId("stop")];
    on.disabled = false;
    if (document.activeElement === off) on.focus({ preventScroll: true });
    off.disabled = true;
    this.followed = scrollY;
    if (isBusy) this.follower.observe(byId("columns"));
  }

  #stop() {
    for (const column of this.columns) column.worker.stop();
  }

  #epochs() {
    const [left, right] = [byId("left"), byId("right")];
    make("option", { value: "", text: "none", parent: right });
    for (const select of [left, right]) {
      for (const model of models) {
        const group = models.length > 1 ? make("optgroup", { label: visible(model.label), parent: select }) : select;
        for (const { part, name } of model.epochs) make("option", { value: part, text: visible(name), parent: group });
      }
    }
    left.value = models[0].epochs.at(-1).part;
    [left, right].forEach((select, number) => {
      const follow = () => this.columns[number].choose(epochs.find(({ part }) => part === select.value) ?? null);
      select.addEventListener("change", follow);
      follow();
    });
  }

  #sampling() {
    const values = { ...data.sampling, top_k: data.sampling.top_k ?? 0, top_p: data.sampling.top_p ?? 1 };
    for (const [name, title, min, max, step] of FIELDS) {
      const label = make("label", { text: `${title} `, parent: byId("sampling") });
      const field = make("input", { type: "number", id: `talk-${name}`, min, max, step, required: "", parent: label });
      field.value = Math.min(values[name], max);
    }
  }

  #examples() {
    for (const { prompt, kind } of data.questions) {
      const button = make("button", { type: "button", dir: "auto", text: visible(prompt), parent: byId("examples") });
      button.addEventListener("click", () => {
        this.kind = kind;
        this.ask(prompt);
      });
    }
    byId("examples").hidden = data.questions.length === 0;
  }

  /** Do what the address says: ?epoch=1&beside=4&temperature=0&ask=… or &text=… to continue. */
  follow(address) {
    const set = (field, value) => {
      if (value === null) return;
      field.value = value;
      field.dispatchEvent(new Event("change"));
    };
    for (const [name, select] of [["epoch", "left"], ["beside", "right"]]) {
      const number = address.get(name);
      const epoch = models[0].epochs.find((one) => String(one.number) === number);
      if (number !== null && !epoch) {
        byId("columns").before(refusal(`This page has no epoch ${number}.`));
        return;
      }
      set(byId(select), epoch?.part ?? null);
    }
    for (const [name] of FIELDS) set(byId(name), address.get(name));
    const [kind, prompt] = address.has("text") ? ["text", address.get("text")] : ["user", address.get("ask")];
    if (prompt === null) return;
    this.kind = kind;
    this.ask(prompt.slice(0, byId("prompt").maxLength));
  }
}

new Talk().follow(new URLSearchParams(location.search));
