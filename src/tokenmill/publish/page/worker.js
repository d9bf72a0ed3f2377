"use strict";

/* The worker of one column: it holds tokenizers and models, and answers what the page asks, one after the other.

   The page sends {task, number, …}, where the task is one of TASKS, or {task: "stop", number}. Back come {number, news}
   while the task is under way, and at its end {number, result} or {number, problem}. */

/** Milliseconds between two looks at the messages, and between two posts of words. */
const TURN = 16;

const tokenizers = new Map(); // by name
const models = new Map(); // by epoch: a model and its tokenizer, or what has come of its weights
const channel = new MessageChannel();
let stoppedUpTo = 0; // the number of a task

/** Let messages come in; a timer would wait for four milliseconds. */
function breathe() {
  return new Promise((resolve) => {
    channel.port1.onmessage = resolve;
    channel.port2.postMessage(null);
  });
}

/** Keep a tokenizer under its name. */
function tokenizer({ name, text }) {
  tokenizers.set(name, new Tokenizer(JSON.parse(text)));
}

/** Put a part of an epoch's weights in its place; with the last one the model is there. */
function weights({ epoch, about, tokenizer: name, at, bytes }) {
  if (!models.has(epoch)) models.set(epoch, { room: new Uint8Array(about.bytes), got: 0 });
  const entry = models.get(epoch);
  entry.room.set(new Uint8Array(bytes), at);
  entry.got += bytes.byteLength;
  if (entry.got === about.bytes) models.set(epoch, { model: buildModel(about, entry.room.buffer), tokenizer: tokenizers.get(name) });
}

function forget({ epoch }) {
  models.delete(epoch);
}

/** The ids of what was asked, and sentences about what was left out, as runs/writer.py has them. */
function prompted(kind, messages, { tokenizer, model: { context } }) {
  const notes = [];
  const unknown = tokenizer.unknown(messages.map(({ content }) => content.replace(MARKS, "")).join(""));
  if (unknown) notes.push(`The tokenizer does not know “${unknown}”; left out.`);
  let ids = [];
  if (kind === "text") {
    ids = tokenizer.plain(messages[0].content);
  } else {
    const limit = Math.floor(context / 2);
    const kept = tokenizer.newest(messages, limit);
    const dropped = messages.length - kept.length;
    ids = tokenizer.chat(kept);
    if (dropped) notes.push(`Left out: the oldest ${dropped} of ${messages.length} turns; the model sees ${limit} tokens of them.`);
  }
  if (ids.length > context) notes.push(`The prompt has ${ids.length} tokens; the model sees the last ${context}.`);
  ids = ids.slice(-context);
  return { ids: ids.length ? ids : [...tokenizer.ends.text], notes };
}

/** The ids of a text as people see them: {id, text} each; special tokens that stand for no text have a name. */
function pieces(ids, spelling) {
  return ids.map((id) => ({ id, text: spelling.add(id), name: spelling.tokenizer.names[id] ?? null }));
}

/** The likeliest ids of a thought with their spellings. */
function named(thought, tokenizer) {
  const spell = (id) => tokenizer.names[id] ?? new TextDecoder("utf-8", { ignoreBOM: true }).decode(tokenizer.pieces[id]);
  return { loss: thought.loss, likeliest: thought.likeliest.map(([id, probability]) => ({ id, text: spell(id), probability })) };
}

/** Write. Tell {name: "prompt", pieces, notes, start}, where `start` is the first piece of the question, then
    {name: "words", pieces, thoughts, tokens, first, seconds} again and again. Thoughts are those of each id from the
    prompt's second on. The result is {rest, text, stopped}, where `text` is the whole answer without white space at its
    ends. */
async function answer({ epoch, kind, messages: typed, sampling, cleaning }, call) {
  const messages = typed.map((one) => (one.role === "user" ? { ...one, content: asCleaned(one.content, cleaning) } : one));
  const entry = models.get(epoch);
  const { model, tokenizer } = entry;
  const began = performance.now();
  const { ids, notes } = prompted(kind, messages, entry);
  const start = kind === "text" ? 0 : ids.lastIndexOf(tokenizer.turns.user) + 1;
  call.tell({ name: "prompt", notes, start, pieces: pieces(ids, new Spelling(tokenizer)) });
  const spelling = new Spelling(tokenizer);
  const ends = tokenizer.ends[kind];
  let words = { pieces: [], thoughts: [] };
  let text = "";
  let tokens = 0;
  let first = null; // the time of the first token
  let last = -Infinity;
  for (const { id, judged } of write(model, ids, sampling, ends)) {
    words.thoughts.push(...judged.map((each) => named(each, tokenizer)));
    const piece = ends.has(id) ? { id, text: "", name: tokenizer.names[id] } : pieces([id], spelling)[0];
    words.pieces.push(piece);
    text += piece.text;
    tokens += 1;
    const now = performance.now();
    first ??= now;
    if (now - last >= TURN) {
      call.tell({ name: "words", ...words, tokens, first: first - began, seconds: (now - first) / 1000 });
      words = { pieces: [], thoughts: [] };
      last = now;
      await breathe();
      if (call.isStopped) break;
    }
  }
  const seconds = (performance.now() - first) / 1000;
  call.tell({ name: "words", ...words, tokens, first: first - began, seconds });
  const rest = spelling.end();
  return { rest, text: strip(text + rest), stopped: call.isStopped };
}

/** What another epoch thinks of a text. Tell {name: "compared", thoughts} again and again; the result is {stopped}. */
async function judge({ epoch, ids, length, candidates }, call) {
  const { model } = models.get(epoch);
  let thoughts = [];
  let last = performance.now();
  for (const judged of compare(model, ids, length, candidates)) {
    thoughts.push(...judged);
    if (performance.now() - last < TURN) continue;
    call.tell({ name: "compared", thoughts });
    thoughts = [];
    await breathe();
    last = performance.now();
    if (call.isStopped) break;
  }
  call.tell({ name: "compared", thoughts });
  return { stopped: call.isStopped };
}

const TASKS = { tokenizer, weights, forget, write: answer, compare: judge };
let queue = Promise.resolve();

onmessage = ({ data: { task, number, ...values } }) => {
  if (task === "stop") {
    stoppedUpTo = number;
    return;
  }
  const call = {
    tell: (news) => postMessage({ number, news }),
    get isStopped() { return number <= stoppedUpTo; },
  };
  queue = queue.then(() => TASKS[task](values, call)).then(
    (result) => postMessage({ number, result }),
    (error) => postMessage({ number, problem: error.message }),
  );
};
