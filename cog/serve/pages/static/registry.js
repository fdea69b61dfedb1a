// What the pages of corpora share: names, times, the confirmation of a switch.

import { rollback, switchCorpus } from "./api.js";
import { make, makeError, oneLine } from "./dom.js";

export const shorten = (digest) => (digest ?? "").split("+").map((each) => each.slice(0, 12)).join("+");
export const count = (value) => value === null || value === undefined ? "" : value.toLocaleString("en");

/** A time as people say it; the whole of it on hovering. */
export function makeTime(time) {
  if (!time) return "";
  const at = new Date(time);
  if (Number.isNaN(at.valueOf())) return oneLine(time);
  const words = at.toLocaleString("en-GB", { day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit" });
  return make("time", { datetime: time, title: time }, words);
}

/** What is switched on, in words. */
export function nameActive(active) {
  if (!active) return "nothing";
  return `${active.corpus} (index ${shorten(active.index)})`;
}

const STATES = {
  indexed: "built", prepared: "prepared, not indexed", fetched: "fetched, not prepared",
  listed: "not built", broken: "broken card",
};
export const nameState = (row) => STATES[row.state] ?? row.state;

/** Ask before something is changed; true where it was agreed to. */
function confirm({ title, facts, label }) {
  const dialog = make("dialog", { "aria-labelledby": "confirm-title" });
  const answer = (value) => () => dialog.close(value);
  dialog.append(
    make("h2", { id: "confirm-title" }, title),
    make("dl", { class: "change" }, ...facts.flatMap(([name, value]) => [
      make("dt", {}, name), make("dd", {}, value),
    ])),
    make("p", { class: "soft small" }, "The next text is written from it, here and in every terminal. Texts that are being written keep what they began with. cog rollback goes back."),
    make("div", { class: "actions" },
      make("button", { type: "button", click: answer("") }, "Cancel"),
      make("button", { type: "button", class: "main-button", autofocus: true, click: answer("yes") }, label)),
  );
  document.body.append(dialog);
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue === "yes");
    });
  });
}

async function change({ told, error, act, done }) {
  error.replaceChildren();
  try {
    const found = await act();
    const words = found.is_change
      ? `Switched: ${nameActive(found.before)} → ${nameActive(found.after)}.`
      : `${nameActive(found.after)} was switched on already.`;
    told.replaceChildren(make("div", { class: "message good" }, make("p", {}, words)));
    await done();
  } catch (failure) {
    told.replaceChildren();
    error.replaceChildren(makeError(failure));
  }
}

/** A button that switches to a corpus, or to one of its versions, once that was confirmed. */
export function makeSwitch({ row, version, active, ...places }) {
  const digest = version?.digest ?? row.index;
  const words = version?.words ?? row.words;
  const facts = [
    ["Now", nameActive(active)],
    ["Then", nameActive({ corpus: row.id, index: digest })],
    ["Holds", [words === null ? "" : `${count(words)} units`, row.licence].filter(Boolean).join(" · ")],
  ];
  const label = version ? "Switch to it" : "Switch on";
  const name = version ? `Switch to version ${shorten(digest)}` : `Switch on ${row.id}`;
  const click = async () => {
    if (!await confirm({ title: `Switch on ${row.id}?`, facts, label: "Switch" })) return;
    await change({ ...places, act: () => switchCorpus({ corpus: row.id, index: version ? digest : null }) });
  };
  return make("button", { type: "button", click, "aria-label": name }, label);
}

/** A button that goes back to what was switched on before. */
export function makeRollback({ active, previous, ...places }) {
  const facts = [["Now", nameActive(active)], ["Then", nameActive(previous)]];
  const click = async () => {
    if (!await confirm({ title: `Roll back to ${previous.corpus}?`, facts, label: "Roll back" })) return;
    await change({ ...places, act: rollback });
  };
  return make("button", { type: "button", click }, `Roll back to ${previous.corpus}`);
}

/** Look every few seconds whether something else was switched on, also in a terminal. */
export function watchActive(known, onChange) {
  let last = known;
  const look = async () => {
    if (document.hidden) return;
    const found = await fetch("/healthz").then((each) => each.json()).catch(() => null);
    if (!found) return;
    const name = found.active ? `${found.active.corpus} ${found.active.index}` : "";
    if (last !== null && name !== last) await onChange();
    last = name;
  };
  setInterval(look, 3000);
  document.addEventListener("visibilitychange", look);
}
