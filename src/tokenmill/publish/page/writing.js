"use strict";

/* Writing token by token: how the next one is chosen, and what the model thought of each.

   The rules are those of evaluation/generate.py. Drawn texts are others than there, because the random numbers are. */

/** Tokens that are named as the likeliest. */
const LIKELIEST = 10;

/** Random numbers from a seed: xoshiro128** (Blackman and Vigna 2018), started by splitmix32. */
class Draws {
  constructor(seed) {
    this.state = new Uint32Array(4);
    for (let i = 0; i < 4; i++) {
      seed = (seed + 0x9e3779b9) | 0;
      let z = Math.imul(seed ^ (seed >>> 16), 0x21f0aaad);
      z = Math.imul(z ^ (z >>> 15), 0x735a2d97);
      this.state[i] = z ^ (z >>> 15);
    }
  }

  /** A number from 0 up to 1. */
  next() {
    const s = this.state;
    const rotated = (x, bits) => (x << bits) | (x >>> (32 - bits));
    const drawn = Math.imul(rotated(Math.imul(s[1], 5), 7), 9) >>> 0;
    const shifted = s[1] << 9;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= shifted;
    s[3] = rotated(s[3], 11);
    return drawn / 2 ** 32;
  }
}

/** The ids of the `count` largest numbers, the largest first. */
function largest(numbers, count) {
  if (count > 256) {
    const all = Array.from(numbers.keys()).sort((a, b) => numbers[b] - numbers[a] || a - b);
    return all.slice(0, count);
  }
  const found = [];
  for (let id = 0; id < numbers.length; id++) {
    if (found.length === count && numbers[id] <= numbers[found[count - 1]]) continue;
    let place = found.length;
    while (place > 0 && numbers[id] > numbers[found[place - 1]]) place--;
    found.splice(place, 0, id);
    if (found.length > count) found.pop();
  }
  return found;
}

/** Chooses each next token. */
class Sampler {
  /** @param sampling temperature, top_k and top_p (null: all), repetition_penalty, seed */
  constructor(sampling, prompt) {
    this.sampling = sampling;
    this.seen = new Set(prompt);
    this.draws = new Draws(sampling.seed);
  }

  choose(logits) {
    const { temperature, repetition_penalty: penalty } = this.sampling;
    const numbers = Float32Array.from(logits);
    if (penalty !== 1) {
      for (const id of this.seen) numbers[id] = numbers[id] > 0 ? numbers[id] / penalty : numbers[id] * penalty;
    }
    const id = temperature === 0 ? largest(numbers, 1)[0] : this.#drawn(numbers);
    this.seen.add(id);
    return id;
  }

  /** Draw among the top_k likeliest, and of these among the fewest that have top_p together. */
  #drawn(numbers) {
    const { temperature, top_k: topK, top_p: topP } = this.sampling;
    const all = topK === null && topP === null;
    const ids = all ? Array.from(numbers.keys()) : largest(numbers, Math.min(topK ?? numbers.length, numbers.length));
    const most = all ? numbers.reduce((a, b) => Math.max(a, b)) : numbers[ids[0]];
    const weights = ids.map((id) => Math.exp((numbers[id] - most) / temperature));
    const total = weights.reduce((a, b) => a + b, 0);
    let kept = 0;
    let nucleus = 0;
    while (kept < ids.length && (topP === null || nucleus < topP * total)) nucleus += weights[kept++];
    let left = this.draws.next() * nucleus;
    for (let index = 0; index < kept; index++) {
      left -= weights[index];
      if (left < 0) return ids[index];
    }
    return ids[kept - 1];
  }
}

/** The logarithm of the sum of the exponentials. */
function logSumExp(logits) {
  let most = -Infinity;
  for (let id = 0; id < logits.length; id++) if (logits[id] > most) most = logits[id];
  let sum = 0;
  for (let id = 0; id < logits.length; id++) sum += Math.exp(logits[id] - most);
  return most + Math.log(sum);
}

/** What a model thinks before a token: its loss in nats, and the likeliest ids with their probabilities. */
function thought(logits, id) {
  const norm = logSumExp(logits);
  const likeliest = largest(logits, LIKELIEST).map((each) => [each, Math.exp(logits[each] - norm)]);
  return { loss: norm - logits[id], likeliest };
}

/** Let a model read a prompt and what follows it, token by token.

    When the context is full, the model reads the later half of it again and continues from there.

    @param choose the next id from its logits and its index; undefined ends the text
    @yields {id, judged}: the next id, and for each id that this step read first `judge(logits, next id, its index)` */
function* follow(model, prompt, choose, judge) {
  const text = [...prompt];
  let unread = text.length;
  let judgedUpTo = 1; // nothing comes before the first id
  model.clear();
  for (;;) {
    const first = text.length - unread;
    const judged = [];
    let next;
    model.read(text.slice(first), (index, logits) => {
      const behind = first + index + 1;
      if (behind === text.length) next = choose(logits, behind);
      const id = behind < text.length ? text[behind] : next;
      if (behind >= judgedUpTo && id !== undefined) judged.push(judge(logits, id, behind));
    });
    if (next === undefined) return;
    text.push(next);
    judgedUpTo = text.length;
    yield { id: next, judged };
    unread = 1;
    if (model.length === model.context) {
      model.clear();
      unread = Math.floor(model.context / 2);
    }
  }
}

/** Write what follows a prompt: `follow` with a sampler, at most `sampling.max_new_tokens` and up to one of `ends`. */
function* write(model, prompt, sampling, ends) {
  const sampler = new Sampler(sampling, prompt);
  let written = 0;
  for (const step of follow(model, prompt, (logits) => sampler.choose(logits), thought)) {
    yield step;
    if (ends.has(step.id) || ++written === sampling.max_new_tokens) return;
  }
}

/** For each id of a text but the first, the probabilities that a model gives to these candidates there, and its loss.
    @param length of the prompt, so that the context is read in the same parts
    @param candidates for each id from the second on, some ids */
function* compare(model, ids, length, candidates) {
  const judge = (logits, id, index) => {
    const norm = logSumExp(logits);
    return { loss: norm - logits[id], probabilities: candidates[index - 1].map((each) => Math.exp(logits[each] - norm)) };
  };
  for (const step of follow(model, ids.slice(0, length), (_, index) => ids[index], judge)) yield step.judged;
}
