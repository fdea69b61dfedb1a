// Judging: a beginning and two continuations at a time, one key for each answer.

import { getItems, judge } from "./api.js";
import { make, makeError, shown } from "./dom.js";

const KEYS = { a: "A", arrowleft: "A", b: "B", arrowright: "B", n: "N" };
const LABELS = { A: "A", N: "No preference", B: "B" };

class Judging {
  constructor(place, { study, token, found }) {
    Object.assign(this, { place, study, token, ...found });
    // every judgement in the order of the cases
    this.steps = this.items.flatMap((item) => this.questions.map((question) => ({ item, question })));
    const first = this.steps.findIndex((step) => !this.answerOf(step));
    this.at = first < 0 ? this.steps.length : first;
    this.numSent = 0; // answers on their way, one after the other so that the last one counts
    this.sent = Promise.resolve();
    window.addEventListener("beforeunload", (event) => { if (this.numSent) event.preventDefault(); });
    document.addEventListener("keydown", (event) => this.take(event));
    this.draw();
  }

  answerOf({ item, question }) {
    return this.answers[item.item]?.[question.name];
  }

  get numDone() {
    return this.items.filter(({ item }) => this.questions.every(({ name }) => this.answers[item]?.[name])).length;
  }

  take(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const key = event.key.toLowerCase();
    if (key in KEYS && this.at < this.steps.length) {
      event.preventDefault();
      this.answer(KEYS[key]);
    } else if (key === "backspace" || key === "u") {
      event.preventDefault();
      this.go(this.at - 1);
    } else if (key === "s") this.skip();
  }

  go(step) {
    this.at = Math.max(0, Math.min(step, this.steps.length));
    this.draw();
  }

  /** On to the next case, without an answer. */
  skip() {
    const { item } = this.steps[this.at] ?? {};
    const next = this.steps.findIndex((step, i) => i > this.at && step.item !== item);
    this.go(next < 0 ? this.steps.length : next);
  }

  answer(value) {
    const step = this.steps[this.at];
    const { item, question } = step;
    this.answers[item.item] = { ...this.answers[item.item], [question.name]: value };
    this.numSent += 1;
    this.go(this.at + 1);
    this.sent = this.sent.then(() => this.send(step, value)).then(() => {
      this.numSent -= 1;
      if (!this.numSent && this.at === this.steps.length) this.draw();
    });
  }

  async send(step, value) {
    const { item, question } = step;
    try {
      await judge(this.study, { token: this.token, item: item.item, question: question.name, answer: value });
    } catch (error) {
      delete this.answers[item.item][question.name];
      this.go(this.steps.indexOf(step));
      this.place.prepend(makeError(Object.assign(error, { message: `Your last answer was not kept: ${error.message}` })));
    }
  }

  draw() {
    const head = make("div", { class: "progress" },
      make("span", { id: "done" }, `${this.numDone} of ${this.items.length} cases done`),
      make("progress", { max: this.items.length, value: this.numDone, "aria-label": "Cases done" }));
    const step = this.steps[this.at];
    if (step) this.place.replaceChildren(make("h1", { class: "visually-hidden" }, "Which text is better?"), head, ...this.drawStep(step));
    else this.place.replaceChildren(head, ...this.drawEnd());
    window.scrollTo(0, this.kept ?? 0);
  }

  drawStep({ item, question }) {
    const number = this.items.indexOf(item) + 1;
    const which = this.questions.indexOf(question) + 1;
    const chosen = this.answerOf({ item, question });
    // a new case is read from its beginning; between its questions nothing moves
    this.kept = which > 1 ? window.scrollY : 0;
    const answers = this.answers_allowed.map((value) => make("button", {
      type: "button", "data-answer": value, "aria-pressed": String(chosen === value), click: () => this.answer(value),
    }, LABELS[value], make("kbd", { class: "keys", "aria-hidden": "true" }, { A: "←", N: "N", B: "→" }[value])));
    return [
      make("p", { class: "prompt", "data-item": item.item }, shown(item.prompt), " …"),
      make("div", { class: "sides" }, ...[["A", item.text_a], ["B", item.text_b]].map(([name, text]) => make("section", { class: "side", "aria-label": `Text ${name}` },
        make("h2", {}, name), make("p", {}, shown(text.replace(/^ +/u, "")))))),
      make("div", { class: "asked" },
        make("h3", { id: "question", role: "status" }, question.text, " ", make("span", { class: "soft" }, `case ${number}, question ${which} of ${this.questions.length}`)),
        make("div", { class: "answers", role: "group", "aria-labelledby": "question" }, ...answers),
        make("p", { class: "more soft small" },
          make("button", { type: "button", class: "plain-button", disabled: this.at === 0, click: () => this.go(this.at - 1) }, "Back"),
          make("button", { type: "button", class: "plain-button", click: () => this.skip() }, "Skip the case"),
          make("span", { class: "keys" }, make("kbd", {}, "←"), " A · ", make("kbd", {}, "→"), " B · ", make("kbd", {}, "N"), " no preference · ",
            make("kbd", {}, "⌫"), " back · ", make("kbd", {}, "S"), " skip"))),
    ];
  }

  drawEnd() {
    const open = this.steps.findIndex((step) => !this.answerOf(step));
    const left = this.items.length - this.numDone;
    const words = this.numSent ? [make("h1", { role: "status" }, "Your answers are being kept …")]
      : open < 0 ? [make("h1", {}, "All cases are judged. Thank you."), make("p", {}, "Every answer is kept. You may close this page, or go back and change what you said.")]
        : [make("h1", {}, "This was the last case."), make("p", {}, `${left} ${left === 1 ? "was" : "were"} left out.`)];
    return [...words, make("div", { class: "actions" },
      ...open < 0 ? [] : [make("button", { type: "button", class: "main-button", click: () => this.go(open) }, "To what was left out")],
      make("button", { type: "button", click: () => this.go(this.steps.length - 1) }, "Back"))];
  }
}

/** Show the cases of a study to somebody who came by a link. */
export async function showJudging(place, { study, token }) {
  document.title = "Which text is better?";
  const found = await getItems(study, token);
  return new Judging(place, { study, token, found });
}
