"use strict";

/* The forward pass of each architecture with a cache of keys and values, as its module in model/ has it.

   Axes: T new positions, S positions so far, H heads, K features per head, D width, V vocabulary. Arrays are rows one
   after the other. Sums are in double precision, what is kept between products in single precision. */

/** Positions that are read together: each weight is fetched once for all of them. */
const TOGETHER = 8;

/** A matrix (out, in) as it is stored: numbers, and a scale for each row. */
class Matrix {
  constructor(values, scales, rows, columns) {
    this.values = values;
    this.scales = scales;
    this.rows = rows;
    this.columns = columns;
  }

  /** Write row `index` to `out` from `start` on. */
  row(index, out, start) {
    const from = index * this.columns;
    for (let i = 0; i < this.columns; i++) out[start + i] = this.values[from + i] * this.scales[index];
  }

  /** x (T, in) → out (T, out), plus a bias if there is one. */
  times(x, count, out, bias) {
    let t = 0;
    for (; t + 4 <= count; t += 4) this.#four(x, t, out);
    for (; t < count; t++) this.#one(x, t, out);
    if (bias === null) return;
    for (t = 0; t < count; t++) {
      for (let r = 0; r < this.rows; r++) out[t * this.rows + r] += bias[r];
    }
  }

  #one(x, t, out) {
    const { values, scales, rows, columns } = this;
    const start = t * columns;
    const whole = columns - (columns % 4);
    for (let r = 0; r < rows; r++) {
      const w = r * columns;
      let a = 0, b = 0, c = 0, d = 0;
      for (let i = 0; i < whole; i += 4) {
        a += values[w + i] * x[start + i];
        b += values[w + i + 1] * x[start + i + 1];
        c += values[w + i + 2] * x[start + i + 2];
        d += values[w + i + 3] * x[start + i + 3];
      }
      for (let i = whole; i < columns; i++) a += values[w + i] * x[start + i];
      out[t * rows + r] = (a + b + (c + d)) * scales[r];
    }
  }

  #four(x, t, out) {
    const { values, scales, rows, columns } = this;
    const x0 = t * columns, x1 = x0 + columns, x2 = x1 + columns, x3 = x2 + columns;
    for (let r = 0; r < rows; r++) {
      const w = r * columns;
      let a = 0, b = 0, c = 0, d = 0;
      for (let i = 0; i < columns; i++) {
        const value = values[w + i];
        a += value * x[x0 + i];
        b += value * x[x1 + i];
        c += value * x[x2 + i];
        d += value * x[x3 + i];
      }
      const scale = scales[r];
      out[t * rows + r] = a * scale;
      out[(t + 1) * rows + r] = b * scale;
      out[(t + 2) * rows + r] = c * scale;
      out[(t + 3) * rows + r] = d * scale;
    }
  }
}

/** Half precision to single precision. */
function fromHalf(halves) {
  const table = new Float32Array(65536);
  for (let bits = 0; bits < 65536; bits++) {
    const exponent = (bits >> 10) & 31;
    const fraction = bits & 1023;
    const size = exponent === 0 ? fraction * 2 ** -24 : (1024 + fraction) * 2 ** (exponent - 25);
    table[bits] = bits & 32768 ? -size : size;
  }
  return Float32Array.from(halves, (bits) => table[bits]);
}

/** The tensors of a model, by name: a Matrix, or a Float32Array of a norm or a bias.
    @param tensors where each lies in the buffer (publish/weights.py) */
function readTensors(tensors, buffer) {
  const found = new Map();
  for (const { name, shape, kind, at, scales_at: scalesAt } of tensors) {
    const [rows, columns = 1] = shape;
    if (kind === "float32") {
      const values = new Float32Array(buffer, at, rows * columns);
      found.set(name, shape.length === 1 ? values : new Matrix(values, new Float32Array(rows).fill(1), rows, columns));
    } else if (kind === "int8") {
      const values = new Int8Array(buffer, at, rows * columns);
      found.set(name, new Matrix(values, new Float32Array(buffer, scalesAt, rows), rows, columns));
    } else {
      const values = fromHalf(new Uint16Array(buffer, at, rows * columns));
      found.set(name, new Matrix(values, new Float32Array(rows).fill(1), rows, columns));
    }
  }
  return found;
}

/** Scale each of the vectors of `size` in x to a root mean square of one; `out` may be x. */
function rmsNorm(x, out, length, size, epsilon) {
  for (let start = 0; start < length; start += size) {
    let sum = 0;
    for (let i = start; i < start + size; i++) sum += x[i] * x[i];
    const scale = 1 / Math.sqrt(sum / size + epsilon);
    for (let i = start; i < start + size; i++) out[i] = x[i] * scale;
  }
}

/** Shift and scale each of the vectors of `size` to mean 0 and variance 1, then by weight and bias. */
function layerNorm(x, out, length, size, { weight, bias, epsilon }) {
  for (let start = 0; start < length; start += size) {
    let sum = 0, squares = 0;
    for (let i = start; i < start + size; i++) sum += x[i];
    const mean = sum / size;
    for (let i = start; i < start + size; i++) squares += (x[i] - mean) ** 2;
    const scale = 1 / Math.sqrt(squares / size + epsilon);
    for (let i = 0; i < size; i++) out[start + i] = (x[start + i] - mean) * scale * weight[i] + bias[i];
  }
}

/** What the architectures have in common: memory, cache, attention, and the order of the layers.

    A subclass has embed, norm, orient (which changes queries and keys by their positions), activate and finish. */
class Model {
  /** @param config the section `tokenmill` of config.json
      @param constants numbers of the architecture, by name
      @param tensors of `readTensors` */
  constructor(config, constants, tensors) {
    this.config = config;
    this.constants = constants;
    this.tensors = tensors;
    this.width = config.n_embd;
    this.features = config.n_embd / config.n_head;
    this.context = config.context_length;
    this.vocabulary = config.vocab_size;
    this.length = 0; // positions in the cache
    const room = (size) => new Float32Array(TOGETHER * size);
    this.x = room(this.width);
    this.normed = room(this.width);
    this.queries = room(this.width);
    this.mixed = room(this.width);
    this.added = room(this.width);
    this.hidden = room(4 * this.width);
    this.logits = room(this.vocabulary);
    this.scores = new Float64Array(this.context);
    this.cache = Array.from({ length: config.n_layer }, () => ({
      keys: new Float32Array(this.context * this.width),
      values: new Float32Array(this.context * this.width),
    }));
  }

  /** Forget what was read. */
  clear() {
    this.length = 0;
  }

  /** Read ids behind those that were read, and call `visit(index, logits)` for each. The array of logits (V) is used
      again for the next. */
  read(ids, visit) {
    for (let start = 0; start < ids.length; start += TOGETHER) {
      const some = ids.slice(start, start + TOGETHER);
      this.#together(some);
      some.forEach((_, index) => {
        visit(start + index, this.logits.subarray(index * this.vocabulary, (index + 1) * this.vocabulary));
      });
    }
  }

  #together(ids) {
    const count = ids.length;
    ids.forEach((id, index) => this.embed(id, this.length + index, index * this.width));
    for (let layer = 0; layer < this.config.n_layer; layer++) {
      const block = `blocks.${layer}.`;
      const [keys, values] = ["keys", "values"].map((name) => this.cache[layer][name].subarray(this.length * this.width));
      this.norm(`${block}norm_1`, this.x, this.normed, count);
      this.map(`${block}attention.q`, this.normed, this.queries, count);
      this.map(`${block}attention.k`, this.normed, keys, count);
      this.map(`${block}attention.v`, this.normed, values, count);
      for (const part of [this.queries, keys]) this.orient(part, count);
      this.#attend(count, this.cache[layer]);
      this.map(`${block}attention.out`, this.mixed, this.added, count);
      this.#shortcut(count);
      this.norm(`${block}norm_2`, this.x, this.normed, count);
      this.map(`${block}up`, this.normed, this.hidden, count);
      this.activate(this.hidden, count * 4 * this.width);
      this.map(`${block}down`, this.hidden, this.added, count);
      this.#shortcut(count);
    }
    this.norm("norm", this.x, this.normed, count);
    this.map("head", this.normed, this.logits, count);
    this.finish(this.logits, count * this.vocabulary);
    this.length += count;
  }

  /** A linear map: x (T, in) → out (T, out). */
  map(name, x, out, count) {
    this.tensors.get(`${name}.weight`).times(x, count, out, this.tensors.get(`${name}.bias`) ?? null);
  }

  #shortcut(count) {
    for (let i = 0; i < count * this.width; i++) this.x[i] += this.added[i];
  }

  /** Causal attention of the new positions to all so far: queries (T, H, K) → mixed (T, H * K). */
  #attend(count, { keys, values }) {
    const { width, features, scores, queries, mixed } = this;
    const scale = 1 / Math.sqrt(features);
    mixed.fill(0, 0, count * width);
    for (let t = 0; t < count; t++) {
      const seen = this.length + t + 1;
      for (let head = 0; head < width; head += features) {
        const q = t * width + head;
        let most = -Infinity;
        for (let s = 0; s < seen; s++) {
          const k = s * width + head;
          let sum = 0;
          for (let i = 0; i < features; i++) sum += queries[q + i] * keys[k + i];
          scores[s] = sum * scale;
          if (scores[s] > most) most = scores[s];
        }
        let total = 0;
        for (let s = 0; s < seen; s++) {
          scores[s] = Math.exp(scores[s] - most);
          total += scores[s];
        }
        for (let s = 0; s < seen; s++) {
          const share = scores[s] / total;
          const v = s * width + head;
          for (let i = 0; i < features; i++) mixed[q + i] += share * values[v + i];
        }
      }
    }
  }
}

/** GPT-2 as published, with an untied head. */
class GPT2 extends Model {
  embed(id, position, start) {
    this.tensors.get("tokens.weight").row(id, this.x, start);
    this.tensors.get("positions.weight").row(position, this.added, start);
    for (let i = start; i < start + this.width; i++) this.x[i] += this.added[i];
  }

  norm(name, x, out, count) {
    const weight = this.tensors.get(`${name}.weight`);
    const bias = this.tensors.get(`${name}.bias`);
    layerNorm(x, out, count * this.width, this.width, { weight, bias, epsilon: this.constants.norm_eps });
  }

  orient() {}

  /** GELU in its tanh form (Hendrycks and Gimpel 2016). */
  activate(x, length) {
    const scale = Math.sqrt(2 / Math.PI);
    for (let i = 0; i < length; i++) {
      x[i] = 0.5 * x[i] * (1 + Math.tanh(scale * (x[i] + 0.044715 * x[i] ** 3)));
    }
  }

  finish() {}
}

/** The improved GPT: rotary positions, normalised queries and keys, RMSNorm without weights, ReLU², capped logits. */
class Modern extends Model {
  constructor(config, constants, tensors) {
    super(config, constants, tensors);
    const half = this.features / 2;
    const factor = Math.sqrt(constants.attention_scale); // queries and keys are both rotated
    this.cos = new Float32Array(this.context * half);
    this.sin = new Float32Array(this.context * half);
    for (let position = 0; position < this.context; position++) {
      for (let i = 0; i < half; i++) {
        const angle = position * constants.rope_base ** (-2 * i / this.features);
        this.cos[position * half + i] = Math.cos(angle) * factor;
        this.sin[position * half + i] = Math.sin(angle) * factor;
      }
    }
  }

  embed(id, position, start) {
    this.lookUp(id, position, start);
    const own = this.x.subarray(start, start + this.width);
    rmsNorm(own, own, this.width, this.width, this.constants.norm_eps);
  }

  /** Write a token's embedding to x. */
  lookUp(id, position, start) {
    this.tensors.get("tokens.weight").row(id, this.x, start);
  }

  norm(name, x, out, count) {
    rmsNorm(x, out, count * this.width, this.width, this.constants.norm_eps);
  }

  /** Normalise and rotate each head of the new queries or keys (T, H, K). */
  orient(x, count) {
    rmsNorm(x, x, count * this.width, this.features, this.constants.norm_eps);
    for (let t = 0; t < count; t++) this.#rotate(x, t * this.width, this.length + t);
  }

  /** Rotate each feature pair (i, i + K / 2) of every head by minus its position's angle (Su et al. 2021). */
  #rotate(x, start, position) {
    const half = this.features / 2;
    for (let head = start; head < start + this.width; head += this.features) {
      for (let i = 0; i < half; i++) {
        const cos = this.cos[position * half + i];
        const sin = this.sin[position * half + i];
        const first = x[head + i];
        const second = x[head + half + i];
        x[head + i] = first * cos + second * sin;
        x[head + half + i] = second * cos - first * sin;
      }
    }
  }

  activate(x, length) {
    for (let i = 0; i < length; i++) x[i] = x[i] > 0 ? x[i] * x[i] : 0;
  }

  finish(x, length) {
    const cap = this.constants.logit_cap;
    for (let i = 0; i < length; i++) x[i] = cap * Math.tanh(x[i] / cap);
  }
}

/** `modern` with learned rows for the pair and for the triple of tokens that each token ends. */
class Speedrun extends Modern {
  constructor(config, constants, tensors) {
    super(config, constants, tensors);
    this.row = new Float32Array(this.width);
  }

  lookUp(id, position, start) {
    super.lookUp(id, position, start);
    if (position === 0) this.before = [this.vocabulary, this.vocabulary]; // no token
    const [first, second] = this.before;
    this.before = [second, id];
    this.#add("pairs.weight", [second, id], start);
    this.#add("triples.weight", [first, second, id], start);
  }

  #add(name, ids, start) {
    const table = this.tensors.get(name);
    table.row(this.#rowOf(ids, table.rows), this.row, 0);
    for (let i = 0; i < this.width; i++) this.x[start + i] += this.row[i];
  }

  /** The row of a pair or triple (model/ngrams.py): its number if the table has a row for each, or else the high bits of
      its hash modulo 2 ** 31. Of a product only the low bits count, which `imul` has. */
  #rowOf(ids, rows) {
    const size = this.vocabulary;
    if ((size + 1) ** (ids.length - 1) * size <= rows) {
      const last = ids.length - 1; // it cannot be missing, so it has one value less
      return ids.slice(0, last).reduce((number, id) => number * (size + 1) + id, 0) * size + ids[last];
    }
    const hash = ids.reduce((number, id) => Math.imul(number + id, this.constants.multiplier) & 0x7fffffff, 0);
    return Math.floor(hash / (2 ** 31 / rows));
  }
}

/** A model of any architecture.
    @param about its configuration, constants and tensors (publish/weights.py)
    @param buffer its weights */
function buildModel(about, buffer) {
  const Architecture = { gpt2: GPT2, modern: Modern, speedrun: Speedrun }[about.config.architecture];
  return new Architecture(about.config, about.constants, readTensors(about.tensors, buffer));
}
