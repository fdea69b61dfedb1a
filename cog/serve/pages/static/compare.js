// The page that compares: one prefix under two to four corpora, systems or settings.

import { getModels } from "./api.js";
import { copyText, findInvalid, makeError } from "./dom.js";
import { Lane } from "./lane.js";
import { SourceView } from "./panel.js";

const FEWEST = 2;
const MOST = 4;
const at = (id) => document.getElementById(id);
const form = at("composer");
const [prefix, seed, length] = ["prefix", "seed", "length"].map(at);
const source = new SourceView(at("source"), { onClose: () => lanes.forEach((lane) => lane.writing.light(null)) });
let lanes = [];
let models = [];
let running = null;

function open(lane, copy, opener) {
  source.open(copy, { index: lane.index, copies: lane.writing.copies, opener });
}

async function add(words) {
  const lane = new Lane({ models, onOpen: open, onRemove: remove });
  lane.fromAddress(words);
  lanes.push(lane);
  at("lanes").append(lane.element);
  arrange();
  return lane.takeSettings();
}

function remove(lane) {
  lanes = lanes.filter((each) => each !== lane);
  lane.element.remove();
  arrange();
  lanes.forEach((each) => each.showFigures(lanes[0]));
  at("add").focus();
}

function arrange() {
  at("lanes").dataset.count = lanes.length;
  lanes.forEach((lane) => { lane.remove.disabled = lanes.length <= FEWEST; });
  at("add").disabled = lanes.length >= MOST;
}

/** Sides that differ: two corpora, or the one there is with and without copies. */
function chooseSides() {
  const active = models.find((each) => each.is_active) ?? models[0];
  const other = models.find((each) => each !== active && !each.id.includes("+"));
  const words = [new URLSearchParams({ corpus: active.id })];
  words.push(new URLSearchParams(other ? { corpus: other.id } : { corpus: active.id, system: "transformer" }));
  return words.map(String);
}

async function begin() {
  models = await getModels();
  if (!models.length) return;
  const asked = new URLSearchParams(location.search);
  const sides = asked.getAll("side").slice(0, MOST);
  const usual = [];
  for (const words of sides.length >= FEWEST ? sides : chooseSides()) usual.push(await add(words));
  const known = Object.fromEntries(usual[0].settings.map((each) => [each.name, each.default]));
  prefix.value = asked.get("prefix") ?? "";
  seed.value = asked.get("seed") ?? known.seed;
  length.value = asked.get("max_new_tokens") ?? known.max_new_tokens;
  length.max = usual[0].limits.max_tokens;
  at("write").disabled = false;
  const problems = lanes.flatMap((lane) => lane.findProblems());
  if (problems.length) return tell(new Error(`The address cannot be used as it is: ${problems.join("; ")}.`));
  if (prefix.value) await write();
}

function keepAddress() {
  const words = new URLSearchParams({ prefix: prefix.value, seed: seed.value, max_new_tokens: length.value });
  for (const lane of lanes) words.append("side", lane.toAddress());
  history.replaceState(null, "", `?${words}`);
}

async function write() {
  const wrong = [form, ...lanes.map((lane) => lane.element)].map(findInvalid).find(Boolean);
  if (wrong) return tell(wrong);
  running?.abort();
  const stop = (running = new AbortController());
  source.close({ isQuiet: true });
  at("error").replaceChildren();
  keepAddress();
  at("stop").disabled = false;
  const request = {
    prefix: prefix.value, seed: Number(seed.value), length: Number(length.value), signal: stop.signal,
  };
  await Promise.all(lanes.map((lane) => lane.write(request).then(() => {
    if (running === stop) lanes.forEach((each) => each.showFigures(lanes[0]));
  })));
  if (running !== stop) return;
  running = null;
  at("stop").disabled = true;
}

function stepSeed(by) {
  const next = Math.max(0, Number(seed.value) + by);
  if (String(next) === seed.value) return;
  seed.value = next;
  if (prefix.value) write();
}

const tell = (error) => at("error").replaceChildren(makeError(error));

form.addEventListener("submit", (event) => { event.preventDefault(); write().catch(tell); });
prefix.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); write().catch(tell); }
});
at("seed-down").addEventListener("click", () => stepSeed(-1));
at("seed-up").addEventListener("click", () => stepSeed(1));
at("stop").addEventListener("click", () => running?.abort());
at("add").addEventListener("click", () => add(lanes.at(-1).toAddress()).catch(tell));
at("copy-address").addEventListener("click", (event) => { keepAddress(); copyText(location.href, event.target); });
document.addEventListener("keydown", (event) => {
  if (event.target.closest("input, textarea, select") || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "n") stepSeed(1);
  if (event.key === "p") stepSeed(-1);
  if (event.key === "Escape") running?.abort();
});

begin().catch(tell);
