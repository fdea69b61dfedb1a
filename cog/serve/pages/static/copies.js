// What was copied: segments go in, sources ranked as in the terminal come out.

const NUM_COLOURS = 8;
const NUM_LINES = 5;

/** Classes of the n-th source: colours and lines repeat after 8 and 5, together after 40. */
export const sourceClass = (rank) => `c${rank % NUM_COLOURS} u${rank % NUM_LINES}`;

export const isCopy = (segment) => segment.from === "corpus";
const keyOf = (segment) => JSON.stringify([segment.corpus, segment.document_id]);
const countWords = (text) => text.split(/\s+/u).filter(Boolean).length;

/** The copies of one text as they come: numbered in order, grouped by document. */
export class Copies {
  all = [];
  sources = new Map();

  /** Add a segment; what is told of it, or null where it was not copied from a corpus. */
  add(segment) {
    if (!isCopy(segment)) return null;
    const key = keyOf(segment);
    if (!this.sources.has(key)) {
      this.sources.set(key, { key, className: this.classOf(segment), copies: [] });
    }
    const source = this.sources.get(key);
    const copy = { segment, source, number: this.all.length + 1 };
    source.copies.push(copy);
    this.all.push(copy);
    return copy;
  }

  /** The class of a copy's source, also of one that is to come next. */
  classOf(segment) {
    return this.sources.get(keyOf(segment))?.className ?? sourceClass(this.sources.size);
  }

  /** Sources, the one whose copies say most first: by bits, by words where a copy lacks them. */
  rank() {
    const hasBits = this.all.every(({ segment }) => Number.isFinite(segment.information));
    const weigh = ({ segment }) => hasBits ? segment.information : countWords(segment.text);
    return [...this.sources.values()]
      .map((source) => ({
        ...source,
        hasBits,
        weight: source.copies.reduce((sum, copy) => sum + weigh(copy), 0),
      }))
      .sort((one, other) => other.weight - one.weight);
  }
}

/** Numbers as short as can be: 1,3-5. */
export function joinNumbers(numbers) {
  const runs = [];
  for (const number of numbers) {
    const last = runs.at(-1);
    if (last && last[1] === number - 1) last[1] = number;
    else runs.push([number, number]);
  }
  return runs
    .map(([low, high]) => low === high ? `${low}` : high === low + 1 ? `${low},${high}` : `${low}-${high}`)
    .join(",");
}

/** Counts of a whole text. */
export function measure(generation) {
  const copies = generation.segments.filter(isCopy);
  const length = (text) => Array.from(text).length;
  const copied = copies.reduce((sum, segment) => sum + length(segment.text), 0);
  const seconds = Object.values(generation.seconds).reduce((sum, each) => sum + each, 0);
  return {
    share: copied / Math.max(1, length(generation.text)),
    copies: copies.length,
    words: copies.reduce((sum, segment) => sum + countWords(segment.text), 0),
    sources: new Set(copies.map(keyOf)).size,
    tokensPerStep: generation.num_tokens / Math.max(1, generation.num_steps),
    seconds,
    tokensPerSecond: generation.num_tokens / Math.max(1e-9, seconds),
  };
}

const escapeMarkdown = (text) => text.replace(/([\\`*_{}[\]<>#|~&])/gu, "\\$1")
  .replace(/^(\s*)([-+])/gmu, "$1\\$2").replace(/^(\s*\d+)([.)])/gmu, "$1\\$2"); // no list
const flatten = (text) => escapeMarkdown((text ?? "").split(/\s+/u).join(" ").trim());

/** The text as Markdown: a footnote at every copy, one note for each document. */
export function toMarkdown(generation, attributions = {}) {
  const copies = new Copies();
  const notes = new Map();
  const parts = [escapeMarkdown(generation.prefix)];
  for (const segment of generation.segments) {
    const copy = copies.add(segment);
    parts.push(escapeMarkdown(segment.text));
    if (!copy) continue;
    if (!notes.has(copy.source.key)) notes.set(copy.source.key, notes.size + 1);
    parts.push(`[^${notes.get(copy.source.key)}]`);
  }
  const lines = [...copies.sources.values()].map((source) => {
    const { corpus, document_id, title, url, licence } = source.copies[0].segment;
    const name = flatten(title || document_id);
    const isSafe = /^https?:\/\/[^\s<>"]+$/u.test(url ?? "");
    const known = [isSafe ? `[${name}](<${url}>)` : name];
    if (attributions[corpus]) known.push(`by ${flatten(attributions[corpus])}`);
    known.push(`document ${flatten(document_id)} of ${flatten(corpus)}`);
    const terms = licence ? ` Licence: ${flatten(licence)}.` : "";
    const words = source.copies.reduce((sum, copy) => sum + countWords(copy.segment.text), 0);
    const changes = `Changes: ${source.copies.length} excerpt${source.copies.length === 1 ? "" : "s"}`
      + ` (${words} word${words === 1 ? "" : "s"} in all) joined with other text by a program.`;
    return `[^${notes.get(source.key)}]: ${known.join(", ")}.${terms} ${changes}`;
  });
  return `${parts.join("")}\n\n${lines.join("\n")}${lines.length ? "\n" : ""}`;
}
