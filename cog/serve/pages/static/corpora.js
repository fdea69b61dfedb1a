// The registry as a table: what is switched on, what is built, and what could be.

import { getCorpora } from "./api.js";
import { make, makeCommand, makeError, oneLine } from "./dom.js";
import { count, makeRollback, makeSwitch, makeTime, nameState, shorten, watchActive } from "./registry.js";

const at = (id) => document.getElementById(id);
const places = { told: at("told"), error: at("error"), done: () => show() };

async function show() {
  const found = await getCorpora();
  showActive(found);
  const built = found.corpora.filter((row) => row.state === "indexed");
  const others = found.corpora.filter((row) => row.state !== "indexed");
  at("corpora").replaceChildren(
    ...built.length ? [make("h2", {}, "Built"), makeBuilt(built, found.active)] : [],
    ...others.length ? [make("h2", {}, "Not built"), makeOthers(others)] : [],
  );
  if (!found.corpora.length) {
    at("corpora").append(make("div", { class: "empty" },
      make("p", {}, "The registry has no card yet. A corpus begins with a folder of texts:"),
      makeCommand("cog corpus add my-notes notes/")));
  }
  return found;
}

function showActive({ active, rollback_to: previous, problem, run, corpora }) {
  const words = make("div", {});
  if (active) {
    words.append(
      make("p", {}, "Switched on: ", make("strong", {}, active.corpus)),
      make("p", { class: "soft small" }, `index ${shorten(active.index)} · model ${active.model.slice(0, 12)} · since `, makeTime(active.switched_at)),
    );
  } else words.append(make("p", {}, make("strong", {}, "Nothing is switched on."), corpora.some((row) => row.state === "indexed") ? " Switch a corpus on below, or in a terminal:" : " In a terminal, in the folder of the project:"));
  if (problem) words.append(make("p", {}, oneLine(problem)));
  if (run) words.append(makeCommand(run));
  at("active").className = `band ${problem ? "bad" : active ? "" : "off"}`;
  at("active").replaceChildren(words, ...previous ? [makeRollback({ active, previous, ...places })] : []);
  at("active").hidden = false;
}

const makeName = (row) => make("th", { scope: "row" },
  make("a", { href: `/corpora/${encodeURIComponent(row.id)}` }, row.id), " ",
  ...row.is_active ? [make("span", { class: "badge on" }, "switched on")] : [],
  make("span", { class: "small" }, make("bdi", {}, oneLine(row.title ?? ""))));

function makeTable(heads, rows) {
  return make("div", { class: "wide" }, make("table", { class: "list folds" },
    make("thead", {}, make("tr", {}, ...heads.map(([name, kind]) => make("th", { scope: "col", class: kind || false }, name)))),
    make("tbody", {}, ...rows)));
}

function makeBuilt(rows, active) {
  const heads = [["Corpus"], ["State"], ["Units", "number"], ["Versions", "number"], ["Licence"], ["Built"], [""]];
  return makeTable(heads, rows.map((row) => make("tr", { class: row.is_active ? "is-active" : false },
    makeName(row),
    make("td", { "data-label": "State" }, ...makeState(row)),
    make("td", { "data-label": "Units", class: "number" }, count(row.words)),
    make("td", { "data-label": "Versions", class: "number" }, count(row.versions)),
    make("td", { "data-label": "Licence" }, oneLine(row.licence ?? "")),
    make("td", { "data-label": "Built" }, makeTime(row.built_at)),
    make("td", { class: "act" }, ...row.is_active ? [] : [makeSwitch({ row, active, ...places })]))));
}

function makeState(row) {
  if (row.error) return [make("span", { class: "badge bad" }, "damaged"), make("span", { class: "small" }, oneLine(row.error))];
  if (row.is_other_model) return [make("span", { class: "badge bad" }, "of another model")];
  return [nameState(row)];
}

function makeOthers(rows) {
  return makeTable([["Corpus"], ["State"], ["Licence"], ["To build it"]], rows.map((row) => make("tr", {},
    makeName(row),
    make("td", { "data-label": "State", class: row.error ? false : "state" }, nameState(row), ...row.error ? [make("span", { class: "small" }, oneLine(row.error))] : []),
    make("td", { "data-label": "Licence" }, oneLine(row.licence ?? "")),
    make("td", {}, ...row.run ? [makeCommand(row.run)] : []))));
}

show()
  .then(({ active }) => watchActive(active ? `${active.corpus} ${active.index}` : "", show))
  .catch((error) => { at("corpora").replaceChildren(); at("error").replaceChildren(makeError(error)); });
