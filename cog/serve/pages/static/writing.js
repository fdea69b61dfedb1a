// A text as it is written: segments go in, marked copies come out; hovering tells their source.

import { Copies } from "./copies.js";
import { formatProbability, make, oneLine, shown } from "./dom.js";

const CHARACTERS_PER_TOKEN = 4.6;

let tip = null;
let tipOwner = null;

function makeTip() {
  tip = make("div", { class: "tip", id: "tip", role: "tooltip", hidden: true });
  document.body.append(tip);
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") hideTip(); });
  tip.addEventListener("mouseleave", hideTip);
}

function hideTip() {
  if (tip) tip.hidden = true;
  tipOwner?.removeAttribute("aria-describedby");
  tipOwner = null;
}

function showTip(element, { segment, source }) {
  if (!tip) makeTip();
  if (tipOwner !== element) hideTip();
  tipOwner = element;
  element.setAttribute("aria-describedby", "tip");
  const facts = [
    ["Licence", segment.licence || "not stated"],
    ["Bits", Number.isFinite(segment.information) ? segment.information.toFixed(1) : "unknown"],
    ["Probability", formatProbability(segment.probability)],
  ];
  tip.className = `tip ${source.className}`;
  tip.replaceChildren(
    make("strong", {}, oneLine(segment.title || segment.document_id)),
    make("dl", {}, ...facts.flatMap(([name, value]) => [
      make("dt", {}, name), make("dd", {}, shown(value)),
    ])),
  );
  tip.hidden = false;
  place(element);
}

function place(element) {
  // below the first line of the copy; above it where there is no room
  const box = element.getClientRects()[0] ?? element.getBoundingClientRect();
  const room = document.documentElement.clientWidth;
  const left = Math.max(8, Math.min(box.left, room - tip.offsetWidth - 8));
  const isLow = box.bottom + tip.offsetHeight + 12 > window.innerHeight && box.top > tip.offsetHeight + 12;
  const top = isLow ? box.top - tip.offsetHeight - 4 : box.bottom + 4;
  tip.style.left = `${left + window.scrollX}px`;
  tip.style.top = `${top + window.scrollY}px`;
}

/** One text on the page. */
export class Writing {
  /** `element` holds the text; `onOpen` is told of the copy whose source is asked for. */
  constructor(element, { onOpen }) {
    this.element = element;
    this.onOpen = onOpen;
    this.clear();
    const find = (event) => {
      const found = event.target.closest?.(".copy");
      return found && { found, copy: this.copies.all[Number(found.dataset.number) - 1] };
    };
    element.addEventListener("mouseover", (event) => {
      const { found, copy } = find(event) ?? {};
      if (copy) showTip(found, copy);
    });
    element.addEventListener("mouseout", (event) => {
      if (find(event) && !tip?.contains(event.relatedTarget)) hideTip();
    });
    element.addEventListener("focusin", (event) => {
      const { found, copy } = find(event) ?? {};
      if (copy) showTip(found, copy);
    });
    element.addEventListener("focusout", hideTip);
    element.addEventListener("click", (event) => {
      const { found, copy } = find(event) ?? {};
      if (copy) this.open(copy, found);
    });
    element.addEventListener("keydown", (event) => {
      const { found, copy } = find(event) ?? {};
      if (!copy || (event.key !== "Enter" && event.key !== " ")) return;
      event.preventDefault();
      this.open(copy, found);
    });
  }

  clear() {
    hideTip();
    this.copies = new Copies();
    this.unfinished = null;
    this.element.replaceChildren();
    this.element.removeAttribute("aria-busy");
  }

  /** Begin a text; room is kept for all of it, so that nothing below it moves. */
  start(prefix, { numTokens }) {
    this.clear();
    this.element.setAttribute("aria-busy", "true");
    this.caret = make("span", { class: "caret", "aria-hidden": "true" });
    this.growing = make("span", {});
    this.element.append(make("span", { class: "given" }, shown(prefix)), this.growing, this.caret);
    this.reserve(prefix.length + numTokens * CHARACTERS_PER_TOKEN);
  }

  reserve(numCharacters) {
    const style = getComputedStyle(this.element);
    const perLine = this.element.clientWidth / (Number.parseFloat(style.fontSize) * 0.43);
    const lines = Math.ceil(numCharacters / Math.max(10, perLine)) + 1;
    this.element.style.minHeight = `${lines * Number.parseFloat(style.lineHeight)}px`;
  }

  /** Show a copy that may go on, as far as it is written. */
  grow(segment) {
    this.unfinished = segment;
    this.growing.className = `copy growing ${this.copies.classOf(segment)}`;
    this.growing.replaceChildren(shown(segment.text));
  }

  /** Add what nothing changes any more. */
  add(segment) {
    this.unfinished = null;
    this.growing.replaceChildren();
    const copy = this.copies.add(segment);
    if (!copy) {
      this.growing.before(make("span", {}, shown(segment.text)));
      return copy;
    }
    const [, space, text] = segment.text.match(/^(\s*)([\s\S]*)$/u);
    if (space) this.growing.before(space);
    this.growing.before(this.makeCopy(copy, text));
    return copy;
  }

  makeCopy(copy, text) {
    return make("span", {
      class: `copy ${copy.source.className}`, role: "button", tabindex: "0",
      "data-number": copy.number,
    }, shown(text), make("sup", { "aria-hidden": "true" }, String(copy.number)));
  }

  /** End a text; of one that was broken off, what is there of a copy stays. */
  finish() {
    if (this.unfinished) this.add(this.unfinished);
    this.growing?.remove();
    this.caret?.remove();
    this.element.removeAttribute("aria-busy");
  }

  open(copy, element) {
    hideTip();
    this.light(copy);
    this.onOpen(copy, element);
  }

  /** Mark the copies of one source; none without one. */
  light(copy) {
    for (const each of this.element.querySelectorAll("[data-number]")) {
      const other = this.copies.all[Number(each.dataset.number) - 1];
      each.classList.toggle("lit", copy !== null && other.source.key === copy.source.key);
    }
  }
}
