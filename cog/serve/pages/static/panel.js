// The list of sources beside a text, and one of them opened at the copy.

import { getDocument } from "./api.js";
import { joinNumbers } from "./copies.js";
import { formatCount, make, makeError, makeLink, oneLine, shown, skipCharacters } from "./dom.js";

const AROUND = 6000; // characters shown on each side of a copy at first
const AT_ONCE = 30000; // that are added when asked

/** List the sources of a text: ranked once it is whole, in the order they came until then. */
export function listSources(element, copies, { isRanked, onChoose }) {
  const sources = isRanked ? copies.rank() : [...copies.sources.values()];
  if (!sources.length) {
    const words = isRanked ? "Nothing was copied: begin with something that the corpus is about, or raise the phrase bias." : "What is copied is listed here.";
    element.replaceChildren(make("h2", {}, "Sources"), make("p", { class: "soft" }, words));
    return;
  }
  element.replaceChildren(
    make("h2", {}, formatCount(sources.length, "source")),
    make("ol", { class: "sources" }, ...sources.map((source) => makeItem(source, onChoose))),
  );
}

/** One source, opened at a copy; `element` is a section that is hidden without one. */
export class SourceView {
  constructor(element, { onClose }) {
    this.element = element;
    this.onClose = onClose;
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && !this.element.hidden) {
        event.stopImmediatePropagation();
        this.close();
      }
    }, { capture: true });
  }

  /** Open the source of a copy, scrolled to it; `index` is the version that was copied from. */
  async open(copy, { index, copies, opener }) {
    const { segment, source } = copy;
    this.opener = opener;
    this.element.hidden = false;
    this.element.className = `source ${source.className}`;
    const close = make("button", { type: "button", class: "plain-button", click: () => this.close() }, "Close");
    const body = make("div", { class: "body", tabindex: "0", role: "region", "aria-label": "Text of the source" },
      make("p", { class: "soft" }, "Opening…"));
    const title = make("h2", { tabindex: "-1" }, oneLine(segment.title || segment.document_id));
    this.element.replaceChildren(make("header", {}, title, close), makeFacts(segment), body);
    this.fit(body);
    title.focus({ preventScroll: true });
    const ask = (range) => getDocument({ ...segment, index }, range);
    try {
      await new Body(body, { copy, copies, ask }).load(
        segment.char_start - AROUND, segment.char_end + AROUND,
      );
    } catch (error) {
      body.replaceChildren(makeError(error));
    }
  }

  fit(body) {
    if (getComputedStyle(this.element).position === "fixed") {
      const [own, other] = [this.element, this.opener].map((each) => each.getBoundingClientRect());
      if (own.top > 0 && other.bottom > own.top) this.opener.scrollIntoView({ block: "start" });
      return;
    }
    const top = body.getBoundingClientRect().top;
    body.style.maxHeight = `${Math.max(260, window.innerHeight - Math.max(top, 0) - 24)}px`;
  }

  close({ isQuiet = false } = {}) {
    if (this.element.hidden) return;
    this.element.hidden = true;
    this.element.replaceChildren();
    this.onClose?.();
    if (!isQuiet) this.opener?.focus();
  }
}

function makeItem(source, onChoose) {
  const { segment } = source.copies[0];
  const numbers = joinNumbers(source.copies.map((copy) => copy.number));
  const title = segment.title || segment.document_id;
  const weight = source.weight === undefined ? ""
    : source.hasBits ? `${source.weight.toFixed(0)} bits` : formatCount(source.weight, "word");
  const parts = [segment.document_id === title ? "" : segment.document_id, segment.licence]
    .filter(Boolean).join(" · ");
  return make("li", {}, make("button", {
    type: "button", click: (event) => onChoose(source.copies[0], event.currentTarget),
  },
  make("span", { class: `key ${source.className}`, title: `copies ${numbers}` }, numbers),
  make("bdi", { class: "title" }, oneLine(title)),
  make("span", { class: "weight", title: "How much its copies say" }, weight),
  make("span", { class: "from" }, make("bdi", {}, oneLine(parts)))));
}

function makeFacts(segment) {
  const facts = make("p", { class: "facts" });
  const title = segment.title || segment.document_id;
  const known = [segment.document_id === title ? "" : segment.document_id, segment.corpus, segment.licence];
  facts.append(...known.filter(Boolean).map((each) => make("span", {}, make("bdi", {}, oneLine(each)))));
  const link = makeLink(segment.url);
  if (link) facts.append(make("br"), link);
  else if (segment.url) facts.append(make("br"), oneLine(segment.url));
  return facts;
}

/** Where a document was copied from, in order; the copy that was asked for is whole. */
function markPlaces(copy, all) {
  const { char_start: from, char_end: to } = copy.segment;
  const places = [{ char_start: from, char_end: to, number: copy.number, isHere: true }];
  for (const { segment, number } of all.filter((each) => each !== copy)) {
    const { char_start: start, char_end: end } = segment;
    for (const [low, high] of [[start, Math.min(end, from)], [Math.max(start, to), end]]) {
      if (low < high) places.push({ char_start: low, char_end: high, number, isHere: false });
    }
  }
  return places.sort((one, other) => one.char_start - other.char_start);
}

/** A document with the copies of it marked: what stands around one copy, more when asked. */
class Body {
  constructor(element, { copy, copies, ask }) {
    Object.assign(this, { element, copy, ask });
    this.places = markPlaces(copy, copies.sources.get(copy.source.key).copies);
  }

  /** Show a range of it, in characters; the beginning is scrolled to the copy. */
  async load(start, end) {
    this.draw(await this.ask({ start: Math.max(0, start), end }));
  }

  draw({ text, char_start: first, char_end: last, num_characters: total }) {
    const parts = [];
    if (first > 0) parts.push(this.makeMore("earlier", first, () => this.load(first - AT_ONCE, last)));
    let [at, unit] = [first, 0]; // code points of the document, units of the string
    const take = (until, into) => {
      const next = skipCharacters(text, until - at, unit);
      into(shown(text.slice(unit, next)));
      [at, unit] = [until, next];
    };
    for (const { char_start, char_end, number, isHere } of this.places) {
      if (char_end <= at || char_start >= last) continue;
      if (char_start > at) take(Math.min(char_start, last), (piece) => parts.push(piece));
      take(Math.min(char_end, last), (piece) => parts.push(
        make("mark", { class: isHere ? "here" : false, "data-number": number }, piece),
      ));
    }
    take(last, (piece) => parts.push(piece));
    if (last < total) parts.push(this.makeMore("later", total - last, () => this.load(first, last + AT_ONCE)));
    this.element.replaceChildren(...parts);
    const mark = this.element.querySelector("mark.here");
    const [inner, outer] = [mark, this.element].map((each) => each.getBoundingClientRect());
    this.element.scrollTop += inner.top - outer.top - this.element.clientHeight / 3;
  }

  makeMore(which, left, click) {
    const count = Math.min(AT_ONCE, left).toLocaleString("en");
    return make("button", { type: "button", click }, `Show ${count} ${which} characters`);
  }
}
