// Settings of decoding: a form on the page, values for the server, words for the address.

import { make } from "./dom.js";

/** The settings of one text, as a form made from what the server says of each. */
export class Settings {
  known = [];
  wanted = {}; // what the address or a person asked for, by name, as text

  /** `shown` are settings that stand elsewhere on the page, by name. */
  constructor(element, { shown = [], prefix = "" }) {
    this.element = element;
    this.shown = new Set(shown);
    this.prefix = prefix;
    element.addEventListener("input", (event) => {
      const { name } = event.target.dataset;
      if (name) this.want(name, readInput(event.target));
      this.mark();
    });
  }

  /** Take the settings of a corpus; what was asked for stays. */
  take(known) {
    this.known = known;
    this.inputs = new Map();
    for (const [name, value] of Object.entries(this.wanted)) this.want(name, value);
    const usual = this.known.filter(({ name, is_advanced }) => !is_advanced && !this.shown.has(name));
    const advanced = this.known.filter(({ name, is_advanced }) => is_advanced && !this.shown.has(name));
    this.element.replaceChildren(
      make("div", { class: "grid" }, ...usual.map((each) => this.makeSetting(each))),
      make("details", { class: "advanced" }, make("summary", {}, "Advanced settings"),
        make("div", { class: "grid" }, ...advanced.map((each) => this.makeSetting(each))),
        make("p", { class: "actions" }, make("button", {
          type: "button", click: () => this.reset(),
        }, "Back to the defaults"))),
    );
    if (advanced.some(({ name }) => name in this.wanted)) this.element.querySelector("details").open = true;
    this.mark();
  }

  makeSetting(setting) {
    const { name, meaning } = setting;
    const id = `${this.prefix}${name}`;
    const input = makeInput(setting, id);
    this.inputs.set(name, input);
    fillInput(input, name in this.wanted ? this.wanted[name] : setting.default);
    const details = make("p", { id: `${id}-meaning` }, `${meaning} `,
      make("span", { class: "default" }, `Default: ${format(setting.default)}`));
    return make("div", { class: "setting" }, make("label", { for: id }, label(name)), input, details);
  }

  want(name, value) {
    const setting = this.known.find((each) => each.name === name);
    if (value === "" || (setting && String(setting.default) === String(value))) delete this.wanted[name];
    else this.wanted[name] = value;
  }

  reset() {
    for (const setting of this.known) {
      if (this.shown.has(setting.name)) continue;
      delete this.wanted[setting.name];
      fillInput(this.inputs.get(setting.name), setting.default);
    }
    this.mark();
  }

  /** What is not as the corpus has it, marked. */
  mark() {
    for (const [name, input] of this.inputs ?? []) {
      input.closest(".setting").classList.toggle("changed", name in this.wanted);
    }
  }

  /** What was asked for, as values of the right type. */
  values() {
    const found = {};
    for (const [name, value] of Object.entries(this.wanted)) {
      const setting = this.known.find((each) => each.name === name);
      if (setting) found[name] = parse(setting, value);
    }
    return found;
  }

  /** What an address asked for that is no setting, or no value of one. */
  findProblems() {
    return Object.entries(this.wanted).flatMap(([name, value]) => {
      const setting = this.known.find((each) => each.name === name);
      if (!setting) return [`${name} is no setting`];
      const allowed = setting.type === "boolean" ? ["true", "false"] : setting.choices ?? [];
      return allowed.length && !allowed.includes(String(value)) ? [`${name} must be ${allowed.join(" or ")}`] : [];
    });
  }
}

const LABELS = {
  method: "Decoding", top_p: "Top p", max_new_tokens: "Length (tokens)",
  top_k_documents: "Chunks retrieved", min_bits: "Least bits of a copy",
  no_repeat_ngram: "No passage twice (tokens)",
};

/** A setting's name as people read it. */
export const label = (name) => LABELS[name] ?? (name[0].toUpperCase() + name.slice(1)).replaceAll("_", " ");

/** A value as people read it. */
export const format = (value) => value === true ? "on" : value === false ? "off" : String(value);

function parse({ type }, value) {
  if (type === "boolean") return value === true || value === "true";
  return type === "number" || type === "integer" ? Number(value) : String(value);
}

function makeInput(setting, id) {
  const { name, type, choices, minimum, maximum } = setting;
  const common = { id, "data-name": name, "aria-describedby": `${id}-meaning` };
  if (type === "boolean") return make("input", { ...common, type: "checkbox" });
  if (type === "choice") {
    return make("select", common, ...choices.map((each) => make("option", { value: each }, each)));
  }
  return make("input", {
    ...common, type: "number", min: minimum, max: maximum, required: true,
    step: type === "integer" ? "1" : "any",
  });
}

function fillInput(input, value) {
  if (input.type === "checkbox") input.checked = value === true || value === "true";
  else input.value = value;
}

function readInput(input) {
  return input.type === "checkbox" ? input.checked : input.value;
}
