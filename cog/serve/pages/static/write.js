// The page that writes: a prefix goes in, cited text streams out; the address holds all settings.

import { generate, getCorpus, getModel, getModels, getSettings } from "./api.js";
import { measure, toMarkdown } from "./copies.js";
import { copyText, findInvalid, formatCount, formatShare, make, makeError, shown } from "./dom.js";
import { listSources, SourceView } from "./panel.js";
import { Settings } from "./settings.js";
import { Writing } from "./writing.js";

const at = (id) => document.getElementById(id);
const form = at("composer");
const [prefix, corpus, seed, length] = ["prefix", "corpus", "seed", "length"].map(at);
const SHOWN = ["seed", "max_new_tokens"]; // stand beside the corpus

const settings = new Settings(at("settings"), { shown: SHOWN });
const source = new SourceView(at("source"), { onClose: closeSource });
const writing = new Writing(at("written"), { onOpen: open });
let generation = null;
let begun = null;
let running = null;
let defaults = {};

function open(copy, opener) {
  at("sources").hidden = true;
  source.open(copy, { index: begun.index, copies: writing.copies, opener });
}

function closeSource() {
  writing.light(null);
  at("sources").hidden = false;
}

const list = (isRanked) => listSources(at("sources"), writing.copies, { isRanked, onChoose: open });

async function begin() {
  const models = await getModels();
  if (!models.length) return;
  const asked = new URLSearchParams(location.search);
  const wanted = asked.get("corpus");
  let missing = null;
  if (wanted && models.every((each) => each.id !== wanted)) {
    await getModel(wanted).then((union) => models.push(union), (error) => { missing = error; });
  }
  const active = models.find((each) => each.is_active);
  corpus.replaceChildren(...models.map((each) => make("option", { value: each.id },
    each.title && each.title !== each.id ? `${each.id} · ${each.title}` : each.id)));
  corpus.value = wanted && !missing ? wanted : (active ?? models[0]).id;
  if (asked.has("prefix")) prefix.value = asked.get("prefix");
  for (const [name, value] of asked) {
    if (name !== "corpus" && name !== "prefix") settings.wanted[name] = value;
  }
  await takeSettings();
  at("write").disabled = false;
  if (missing) return tell(new Error(`The address names the corpus ${wanted}, which cannot be written from now.`));
  const problems = settings.findProblems();
  if (problems.length) return tell(new Error(`The address cannot be used as it is: ${problems.join("; ")}.`));
  if (prefix.value && asked.has("prefix")) await write();
}

async function takeSettings() {
  const found = await getSettings(corpus.value);
  defaults = Object.fromEntries(found.settings.map((each) => [each.name, each.default]));
  settings.take(found.settings);
  seed.value = settings.wanted.seed ?? defaults.seed;
  length.value = settings.wanted.max_new_tokens ?? defaults.max_new_tokens;
  length.max = found.limits.max_tokens;
  at("tuned").textContent = found.tuned;
  showExamples(found.examples);
  prefix.maxLength = found.limits.max_prefix_characters;
}

/** What may be begun with, as long as nothing is written. */
function showExamples(examples) {
  at("examples").hidden = !examples.length || !at("desk").hidden;
  at("examples").querySelector("ul").replaceChildren(...examples.map((text) => make("li", {}, make("button", {
    type: "button", click: () => { prefix.value = text; write(); },
  }, shown(text), "…"))));
}

function readRequest() {
  const decoding = { ...settings.values(), seed: Number(seed.value), max_new_tokens: Number(length.value) };
  return { prefix: prefix.value, corpus: corpus.value, decoding };
}

/** Put all settings that were used into the address, so that it gives the same text again. */
function keepAddress(request, decoding) {
  const values = { prefix: request.prefix, corpus: request.corpus, ...decoding };
  const address = `?${new URLSearchParams(Object.entries(values))}`;
  if (address !== location.search) history.replaceState(null, "", address);
}

async function write() {
  const wrong = findInvalid(form);
  if (wrong) return tell(wrong);
  running?.abort();
  const stop = (running = new AbortController());
  const request = readRequest();
  generation = begun = null;
  source.close({ isQuiet: true });
  at("done").hidden = true;
  at("error").replaceChildren();
  at("examples").hidden = true;
  at("desk").hidden = false;
  at("stop").disabled = false;
  at("status").textContent = "Waiting for a place…";
  writing.start(request.prefix, { numTokens: request.decoding.max_new_tokens });
  list(false);
  at("output").focus({ preventScroll: true });
  try {
    const made = await generate(request, { on: { begin: (data) => takeBegin(data, request), segment: takeSegment, growing: ({ segment }) => writing.grow(segment) }, signal: stop.signal });
    generation = made;
    writing.finish();
    finish();
  } catch (error) {
    writing.finish();
    if (running !== stop) return; // another text has taken its place
    list(false);
    at("status").textContent = error.name === "AbortError" ? "Stopped." : "";
    if (error.name !== "AbortError") tell(error);
  } finally {
    if (running === stop) {
      running = null;
      at("stop").disabled = true;
    }
  }
}

function takeBegin(data, request) {
  begun = data;
  keepAddress(request, data.decoding);
  const [text] = data.texts;
  const cut = text.unread_tokens ? ` The first ${text.unread_tokens} tokens of the prefix are not read: it is longer than the model's context.` : "";
  at("status").textContent = `Writing from ${data.corpus}…${cut}`;
}

function takeSegment({ segment }) {
  if (writing.add(segment)) list(false);
}

function finish() {
  const found = measure(generation);
  at("status").textContent = `Written from ${generation.corpus}, index ${generation.index.split("+").map((each) => each.slice(0, 12)).join("+")}.`;
  at("counts").textContent = [
    `${generation.num_tokens} tokens in ${formatCount(generation.num_steps, "step")}`,
    `${formatShare(found.share)} copied from ${formatCount(found.sources, "document")}`,
    `seed ${generation.decoding.seed}`,
    `${found.tokensPerSecond.toFixed(0)} tokens a second`,
  ].join(" · ");
  at("done").hidden = false;
  list(true);
}

function tell(error) {
  at("error").replaceChildren(makeError(error));
}

function stepSeed(by) {
  const next = Math.max(0, Number(seed.value) + by);
  if (String(next) === seed.value) return;
  seed.value = next;
  settings.wanted.seed = String(next);
  if (prefix.value) write();
}

const attributions = {};
async function copyMarkdown(button) {
  for (const id of new Set(generation.segments.map((each) => each.corpus).filter(Boolean))) {
    attributions[id] ??= (await getCorpus(id).catch(() => null))?.card.licence.attribution ?? "";
  }
  await copyText(toMarkdown(generation, attributions), button);
}

form.addEventListener("submit", (event) => { event.preventDefault(); write(); });
prefix.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); write(); }
});
corpus.addEventListener("change", () => takeSettings().catch(tell));
seed.addEventListener("change", () => { settings.wanted.seed = seed.value; });
length.addEventListener("change", () => { settings.wanted.max_new_tokens = length.value; });
at("seed-down").addEventListener("click", () => stepSeed(-1));
at("seed-up").addEventListener("click", () => stepSeed(1));
at("stop").addEventListener("click", () => running?.abort());
at("copy-text").addEventListener("click", (event) => copyText(generation.prefix + generation.text, event.target));
at("copy-markdown").addEventListener("click", (event) => copyMarkdown(event.target));
at("copy-json").addEventListener("click", (event) => copyText(JSON.stringify(generation, null, 2), event.target));
at("copy-address").addEventListener("click", (event) => copyText(location.href, event.target));
document.addEventListener("keydown", (event) => {
  const isTyping = event.target.closest("input, textarea, select");
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "n") stepSeed(1);
  if (event.key === "p") stepSeed(-1);
  if (event.key === "Escape") running?.abort();
});

begin().catch(tell);
