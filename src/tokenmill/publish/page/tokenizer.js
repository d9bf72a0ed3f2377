"use strict";

/* Text to ids and back, from tokenizer.json: byte-level BPE, or one token per character.

   Text is text: one that spells a special token gets the tokens of these characters. Only `chat` writes the special
   tokens of turns. The ids are those of Hugging Face `tokenizers`; a test compares them. */

/** How byte-level BPE cuts a text before it merges (GPT-2's pattern, Radford et al. 2019).
    @param classes ranges of letters, numbers and spaces (publish/parts.py); those of the browser may be others */
function wordPattern({ letters, numbers, spaces }) {
  const others = `[^${spaces}${letters}${numbers}]`;
  const alternatives = ["'s|'t|'re|'ve|'m|'ll|'d", ` ?[${letters}]+`, ` ?[${numbers}]+`, ` ?${others}+`];
  return new RegExp([...alternatives, `[${spaces}]+(?![^${spaces}])`, `[${spaces}]+`].join("|"), "gu");
}

/** What Python's str.strip() removes. */
const SPACE = "[\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000]";
const AROUND = new RegExp(`^${SPACE}+|${SPACE}+$`, "g");

/** The code points of marks, which no text from outside may hold (formats/chat.py). */
const MARKS = /[\ufdd1-\ufdd5]/g;

const MOST_WORDS = 20000; // that are remembered with their ids

/** For each byte, the character that stands for it in a byte-level vocabulary: itself if Latin-1 can print it, otherwise
    one of U+0100 … (Radford et al. 2019, GPT-2's encoder). */
function byteCharacters() {
  const printable = (byte) => (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte !== 0xad);
  let others = 0;
  return Array.from({ length: 256 }, (_, byte) => String.fromCharCode(printable(byte) ? byte : 0x100 + others++));
}

/** A text without white space at its ends. */
function strip(text) {
  return text.replace(AROUND, "");
}

class Tokenizer {
  /** @param layout the content of tokenizer.json
      @param turns the ids of the special tokens of turns: user, assistant, system, tool and end
      @param classes of characters, of `wordPattern`
      @param spellings what people see in place of special tokens, by id; the others are not seen
      @param end the id of end-of-text */
  constructor({ layout, turns, classes, spellings, end }) {
    this.wordPattern = wordPattern(classes);
    const vocabulary = Object.entries(layout.model.vocab);
    const added = new Map(layout.added_tokens.map((token) => [token.id, token.content]));
    const ids = [...vocabulary.map(([, id]) => id), ...added.keys()];
    this.size = ids.reduce((most, id) => Math.max(most, id), 0) + 1;
    this.turns = turns;
    this.ends = { text: new Set([end]), user: new Set([end, ...Object.values(turns)]) }; // by the kind of prompt
    this.isBytes = layout.pre_tokenizer !== null;
    this.ignoreMerges = layout.model.ignore_merges === true;
    this.idOf = new Map(vocabulary);
    this.names = new Array(this.size); // of special tokens
    added.forEach((content, id) => { this.names[id] = content; });
    this.characters = byteCharacters();
    this.pieces = this.#pieces(vocabulary, added, spellings);
    this.merges = this.#merges(layout.model.merges);
    this.words = new Map();
  }

  /** The UTF-8 bytes of each id, as people see them. */
  #pieces(vocabulary, added, spellings) {
    const encoder = new TextEncoder();
    const byteOf = new Map(this.characters.map((character, byte) => [character, byte]));
    const bytes = (token) => (this.isBytes ? Uint8Array.from(token, (one) => byteOf.get(one)) : encoder.encode(token));
    const found = Array.from({ length: this.size }, () => new Uint8Array(0));
    for (const [token, id] of vocabulary) {
      if (!added.has(id)) found[id] = bytes(token);
    }
    for (const [id, text] of Object.entries(spellings)) found[id] = encoder.encode(text);
    return found;
  }

  /** For each pair of ids, by first × size + second, its rank and the id of both together. */
  #merges(pairs) {
    const found = new Map();
    pairs.forEach((pair, rank) => {
      const [first, second] = Array.isArray(pair) ? pair : pair.split(" ");
      const key = this.idOf.get(first) * this.size + this.idOf.get(second);
      found.set(key, [rank, this.idOf.get(first + second)]);
    });
    return found;
  }

  /** The ids of a text. Characters that the tokenizer does not know are left out; see `unknown`. */
  encode(text) {
    const whole = new TextDecoder("utf-8", { ignoreBOM: true }).decode(new TextEncoder().encode(text)); // no lone surrogates
    if (!this.isBytes) return [...whole].map((one) => this.idOf.get(one)).filter((id) => id !== undefined);
    return (whole.match(this.wordPattern) ?? []).flatMap((word) => this.#word(word));
  }

  #word(word) {
    let ids = this.words.get(word);
    if (ids === undefined) {
      const letters = Array.from(new TextEncoder().encode(word), (byte) => this.characters[byte]);
      const whole = this.ignoreMerges ? this.idOf.get(letters.join("")) : undefined;
      ids = whole === undefined ? this.#merged(letters.map((letter) => this.idOf.get(letter))) : [whole];
      if (this.words.size >= MOST_WORDS) this.words.clear();
      this.words.set(word, ids);
    }
    return ids;
  }

  /** Merge the pair of the lowest rank, of several the first, until there is none. */
  #merged(letters) {
    const ids = letters.filter((id) => id !== undefined);
    for (;;) {
      let best = null;
      let at = -1;
      for (let index = 0; index + 1 < ids.length; index++) {
        const merge = this.merges.get(ids[index] * this.size + ids[index + 1]);
        if (merge !== undefined && (best === null || merge[0] < best[0])) {
          best = merge;
          at = index;
        }
      }
      if (best === null) return ids;
      ids.splice(at, 2, best[1]);
    }
  }

  /** The distinct characters of a text that have no token; for BPE always empty. */
  unknown(text) {
    return this.isBytes ? "" : [...new Set(text)].filter((one) => !this.idOf.has(one)).sort().join("");
  }

  /** The ids of a conversation up to the assistant's next turn; messages have a role and content. */
  chat(messages) {
    const said = messages.flatMap(({ role, content }) => {
      const text = strip(content.replace(MARKS, ""));
      return text ? [this.turns[role], ...this.encode(text), this.turns.end] : [];
    });
    return [...said, this.turns.assistant];
  }

  /** The newest messages whose ids up to the assistant's next turn are at most `limit`; at least one, if there is
      one. */
  newest(messages, limit) {
    let room = limit - 1; // the assistant's mark
    let first = messages.length;
    while (first > 0) {
      room -= this.chat([messages[first - 1]]).length - 1;
      if (room < 0) break;
      first -= 1;
    }
    return messages.slice(Math.min(first, Math.max(messages.length - 1, 0)));
  }

  /** The ids of a text to continue. */
  plain(text) {
    return this.encode(text.replace(MARKS, ""));
  }
}

/** Turns the bytes of tokens into text as they come, by whole characters. */
class Spelling {
  constructor(tokenizer) {
    this.tokenizer = tokenizer;
    this.decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  }

  /** The text that this id completes. */
  add(id) {
    return this.decoder.decode(this.tokenizer.pieces[id], { stream: true });
  }

  /** What is left of a character that no id completed: U+FFFD, or nothing. */
  end() {
    return this.decoder.decode();
  }
}
