// One side of a comparison: its corpus, system and settings, its text, and its figures.

import { generate, getSettings } from "./api.js";
import { measure } from "./copies.js";
import { formatCount, make, makeError } from "./dom.js";
import { listSources } from "./panel.js";
import { Settings } from "./settings.js";
import { Writing } from "./writing.js";

const COG = "cog";
const SHARED = ["seed", "max_new_tokens"];
const FIGURES = [
  ["Copied", "share", (value) => `${(100 * value).toFixed(0)} %`, (value) => `${(100 * value).toFixed(0)} points`],
  ["Copies", "copies", (value) => value.toFixed(0)],
  ["Sources", "sources", (value) => value.toFixed(0)],
  ["Tokens a step", "tokensPerStep", (value) => value.toFixed(2)],
  ["Seconds", "seconds", (value) => value.toFixed(2)],
];

let numLanes = 0;

/** One side. */
export class Lane {
  constructor({ models, onOpen, onRemove }) {
    numLanes += 1;
    const id = `side-${numLanes}`;
    this.corpus = make("select", { id: `${id}-corpus` }, ...models.map((each) => make("option", { value: each.id }, each.id)));
    this.system = make("select", { id: `${id}-system`, "aria-describedby": `${id}-meaning` });
    this.wanted = COG;
    this.meaning = make("p", { class: "soft small", id: `${id}-meaning` });
    this.remove = make("button", { type: "button", class: "plain-button icon-button", "aria-label": "Remove this side", title: "Remove this side", click: () => onRemove(this) }, "×");
    this.form = make("div");
    this.status = make("p", { class: "status", role: "status" });
    this.text = make("p", { class: "written" });
    this.figures = make("table", { class: "figures", hidden: true });
    this.sources = make("div");
    this.list = make("details", { class: "sources-of", hidden: true }, make("summary", {}, "Sources"), this.sources);
    this.error = make("div");
    this.element = make("section", { class: "lane", "aria-label": `Side ${numLanes}` },
      make("div", { class: "lane-head" },
        make("div", { class: "field" }, make("label", { for: this.corpus.id }, "Corpus"), this.corpus),
        make("div", { class: "field" }, make("label", { for: this.system.id }, "System"), this.system),
        this.remove),
      this.meaning,
      make("details", { class: "settings" }, make("summary", {}, "Settings"), this.form),
      this.status, this.error, this.text, this.figures, this.list);
    this.settings = new Settings(this.form, { shown: SHARED, prefix: `${id}-` });
    this.open = (copy, opener) => onOpen(this, copy, opener);
    this.writing = new Writing(this.text, { onOpen: this.open });
    this.corpus.addEventListener("change", () => this.takeSettings().catch((error) => this.tell(error)));
    this.system.addEventListener("change", () => {
      this.wanted = this.system.value;
      this.tellSystem();
    });
  }

  /** Say what the system changes. */
  tellSystem() {
    const found = this.usual.systems.find(({ name }) => name === this.system.value);
    this.meaning.textContent = found.name === COG ? "" : `${found.meaning[0].toUpperCase()}${found.meaning.slice(1)}.`;
  }

  /** Ask what the corpus writes with; what is usual comes back. */
  async takeSettings() {
    this.usual = await getSettings(this.corpus.value);
    this.settings.take(this.usual.settings);
    const { systems } = this.usual;
    this.system.replaceChildren(...systems.map(({ name, meaning }) => make("option", { value: name, title: meaning }, name)));
    this.system.value = systems.some(({ name }) => name === this.wanted) ? this.wanted : COG;
    this.tellSystem();
    return this.usual;
  }

  /** Words of the address that make this side again. */
  toAddress() {
    const words = new URLSearchParams({ corpus: this.corpus.value });
    if (this.wanted !== COG) words.set("system", this.wanted);
    for (const [name, value] of Object.entries(this.settings.wanted)) words.set(name, value);
    return String(words);
  }

  fromAddress(words) {
    for (const [name, value] of new URLSearchParams(words)) {
      if (name === "corpus") this.corpus.value = value;
      else if (name === "system") this.wanted = value;
      else this.settings.wanted[name] = value;
    }
    if (!this.corpus.value) {
      this.missing = new URLSearchParams(words).get("corpus");
      this.corpus.selectedIndex = 0;
    }
  }

  /** What the address asked of this side that there is not. */
  findProblems() {
    const problems = this.settings.findProblems();
    return this.missing ? [`${this.missing} cannot be written from now`, ...problems] : problems;
  }

  async write({ prefix, seed, length, signal }) {
    this.generation = this.index = null;
    this.figures.hidden = this.list.hidden = true;
    this.error.replaceChildren();
    this.status.textContent = "Waiting for a place…";
    this.writing.start(prefix, { numTokens: length });
    const decoding = { ...this.settings.values(), seed, max_new_tokens: length };
    const request = { prefix, corpus: this.corpus.value, system: this.system.value, decoding };
    const on = {
      begin: ({ index }) => {
        this.index = index;
        this.status.textContent = "Writing…";
      },
      segment: ({ segment }) => this.writing.add(segment),
      growing: ({ segment }) => this.writing.grow(segment),
    };
    try {
      this.generation = await generate(request, { on, signal });
      this.status.textContent = `${formatCount(this.generation.num_tokens, "token")} in ${formatCount(this.generation.num_steps, "step")}`;
      listSources(this.sources, this.writing.copies, { isRanked: true, onChoose: this.open });
      this.list.querySelector("summary").textContent = formatCount(this.writing.copies.sources.size, "source");
      this.list.hidden = !this.writing.copies.sources.size;
    } catch (error) {
      if (error.name === "AbortError") this.status.textContent = "Stopped.";
      else this.tell(error);
    } finally {
      this.writing.finish();
    }
  }

  tell(error) {
    this.status.textContent = "";
    this.error.replaceChildren(makeError(error));
  }

  /** Show the figures, each beside what differs from the first side. */
  showFigures(first) {
    if (!this.generation) return;
    const own = measure(this.generation);
    const other = first && first !== this && first.generation ? measure(first.generation) : null;
    this.figures.replaceChildren(
      make("caption", { class: "visually-hidden" }, "Figures of this side, and what differs from the first"),
      ...FIGURES.map(([name, key, format, formatChange]) => make("tr", {},
        make("th", { scope: "row" }, name),
        make("td", {}, format(own[key])),
        ...other ? [make("td", { class: "difference" }, formatDifference(own[key] - other[key], formatChange ?? format))] : [])),
    );
    this.figures.hidden = false;
  }
}

function formatDifference(difference, format) {
  const shown = format(Math.abs(difference));
  if (!/[1-9]/u.test(shown)) return "same";
  return `${difference > 0 ? "+" : "−"}${shown}`;
}
