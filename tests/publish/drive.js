"use strict";

/* Runs the published page's code under node: a task in JSON on each line of stdin, its result on a line of stdout. */

const fs = require("node:fs");
const readline = require("node:readline");
const vm = require("node:vm");

const [folder, ...files] = process.argv.slice(2);
for (const file of files) vm.runInThisContext(fs.readFileSync(`${folder}/${file}`, "utf8"), { filename: file });

const TASKS = `({
  tokenizer: (part) => {
    globalThis.tokenizer = new Tokenizer(part);
  },
  rules: ({ rules }) => {
    globalThis.rules = rules;
  },
  clean: ({ text }) => asCleaned(text, rules),
  encode: ({ text }) => tokenizer.plain(text),
  chat: ({ messages }) => tokenizer.chat(messages),
  newest: ({ messages, limit }) => tokenizer.newest(messages, limit),
  unknown: ({ text }) => tokenizer.unknown(text),
  decode: ({ ids }) => {
    const spelling = new Spelling(tokenizer);
    return ids.map((id) => spelling.add(id)).join("") + spelling.end();
  },
  model: ({ about, base64 }) => {
    globalThis.model = buildModel(about, new Uint8Array(Buffer.from(base64, "base64")).buffer);
  },
  logits: ({ parts }) => {
    const rows = [];
    model.clear();
    for (const ids of parts) model.read(ids, (_, logits) => rows.push(Array.from(logits)));
    return rows;
  },
  write: ({ prompt, sampling, ends }) => [...write(model, prompt, sampling, new Set(ends))],
  compare: ({ ids, length, candidates }) => [...compare(model, ids, length, candidates)].flat(),
  choose: ({ logits, sampling, times }) => {
    const sampler = new Sampler(sampling, []);
    return Array.from({ length: times }, () => sampler.choose(Float32Array.from(logits)));
  },
})`;
const tasks = vm.runInThisContext(TASKS);

readline.createInterface({ input: process.stdin }).on("line", (line) => {
  const { task, ...values } = JSON.parse(line);
  process.stdout.write(`${JSON.stringify(tasks[task](values) ?? null)}\n`);
});
