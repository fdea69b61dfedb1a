// One corpus: card, build, samples, versions and what differs, history, what the doctor finds.

import { getCorpora, getCorpus, getDiff, getFindings, getHistory, getSamples, getVersions } from "./api.js";
import { formatShare, make, makeCommand, makeError, makeLink, oneLine, shown } from "./dom.js";
import { count, makeSwitch, makeTime, nameActive, nameState, shorten, watchActive } from "./registry.js";

const at = (id) => document.getElementById(id);
const id = at("corpus").dataset.corpus;
const places = { told: at("told"), error: at("error"), done: () => show() };
const content = (name) => document.querySelector(`#${name} .content`);

/** Fill a part of the page; what goes wrong is said there, and the rest stays. */
async function fill(name, ask, draw) {
  try {
    content(name).replaceChildren(...draw(await ask()));
  } catch (error) {
    content(name).replaceChildren(makeError(error));
  }
}

async function show() {
  const [{ active }, found] = await Promise.all([getCorpora(), getCorpus(id)]);
  const { card, row } = found;
  at("title").replaceChildren(oneLine(card?.title || id));
  at("lead").replaceChildren(id, " · ", nameState(row), ...row.is_active ? [" · ", make("span", { class: "badge on" }, "switched on")] : []);
  const write = make("a", { class: "button", href: `/?corpus=${encodeURIComponent(id)}` }, "Write from it");
  at("actions").replaceChildren(...row.state === "indexed"
    ? [write, ...row.is_active ? [] : [makeSwitch({ row, active, ...places })]] : []);
  content("card").replaceChildren(...drawCard(card));
  content("build").replaceChildren(...drawBuild(found));
  await Promise.all([
    fill("samples", () => ["indexed", "prepared"].includes(row.state) ? getSamples(id, { num: 3, seed: 0 }) : [], drawSamples),
    fill("versions", () => getVersions(id), (versions) => drawVersions(versions, { row, active })),
    fill("history", () => getHistory(id), drawHistory),
    fill("doctor", () => getFindings(id), drawFindings),
  ]);
  return active;
}

function makeFacts(pairs) {
  const given = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return make("dl", { class: "facts-list" }, ...given.flatMap(([name, value]) => [
    make("dt", {}, name), make("dd", {}, typeof value === "string" ? shown(value) : value),
  ]));
}

function drawCard(card) {
  if (!card) return [make("p", {}, "The card cannot be read.")];
  const { licence, source, format } = card;
  const origin = source && Object.entries(source).filter(([name, value]) => value && name !== "type" && name !== "sha256")
    .map(([name, value]) => `${name} ${[value].flat().join(", ")}`).join(" · ");
  return [make("p", {}, shown(card.description ?? "")), makeFacts([
    ["Licence", licence.url ? make("span", {}, makeLink(licence.url, licence.id) ?? licence.id) : licence.id],
    ["To be named", licence.attribution],
    ["Language", card.language],
    ["Source", source ? `${source.type}: ${origin}` : null],
    ["Checksum", source?.sha256 ? make("code", {}, source.sha256) : null],
    ["Part of", card.extends ? make("a", { href: `/corpora/${encodeURIComponent(card.extends)}` }, card.extends) : null],
    ["Share of it", card.subset ? `${formatShare(card.subset.proportion)}, seed ${card.subset.seed}` : null],
    ["Format", format ? `${format.kind}, one document per ${format.documents ?? "row"}` : null],
    ["Normaliser", card.normaliser],
    ["Duplicates", card.deduplicate],
    ["Held out", card.prompts ? `${formatShare(card.prompts.held_out)} of the documents, for prompts` : null],
  ])];
}

function drawBuild({ row, prepared, index }) {
  const parts = [];
  if (row.error) parts.push(make("p", {}, oneLine(row.error)));
  if (row.run) parts.push(make("p", {}, "Next:"), makeCommand(row.run));
  const columns = [];
  if (prepared) {
    const skipped = Object.entries(prepared.skipped).filter(([, number]) => number);
    columns.push(make("div", {}, make("h3", {}, "Documents"), makeFacts([
      ["Read", count(prepared.num_read)],
      ["Kept", `${count(prepared.num_documents)} (${count(prepared.num_words)} words)`],
      ["Left out", skipped.length ? make("ul", {}, ...skipped.map(([reason, number]) => make("li", {}, `${count(number)} ${reason}`))) : "none"],
      ["Prompts", count(prepared.num_prompts)],
      ["Normaliser", prepared.normaliser],
      ["Notes", prepared.notes.length ? make("ul", {}, ...prepared.notes.map((note) => make("li", {}, shown(note)))) : null],
    ])));
  }
  if (index) {
    const { search, vectors, storage_cost: cost } = index;
    columns.push(make("div", {}, make("h3", {}, "Index"), makeFacts([
      ["Digest", make("code", {}, index.digest)],
      ["Built", make("span", {}, makeTime(index.built_at))],
      ["Documents", count(index.documents.num_indexed)],
      ["Chunks", count(index.num_chunks)],
      ["Units", count(index.num_words)],
      ["Vectors", `${vectors.dtype}, ${vectors.dim} wide, ${vectors.bytes_per_word.toFixed(0)} bytes a unit`],
      ["Cost of storing", cost ? `total variation ${cost.total_variation_mean.toFixed(4)} on ${cost.num_prefixes} prefixes` : "not measured"],
      ["Search", `${search.kind}, finds ${formatShare(search.recall)} of the best ${search.recall_at}`],
      ["Model", make("code", {}, index.model.slice(0, 16))],
    ])));
  }
  if (columns.length) parts.push(make("div", { class: "two" }, ...columns));
  return parts.length ? parts : [make("p", { class: "soft" }, "Nothing is built.")];
}

let sampleSeed = 0;
function drawSamples(samples) {
  if (!samples.length) return [make("p", { class: "soft" }, "There are no documents yet.")];
  const more = () => {
    sampleSeed += 1;
    fill("samples", () => getSamples(id, { num: 3, seed: sampleSeed }), drawSamples);
  };
  return [
    make("div", { class: "samples" }, ...samples.map((each) => make("article", { class: "sample" },
      make("h3", {}, makeLink(each.url, make("bdi", {}, oneLine(each.title || each.document_id))) ?? make("bdi", {}, oneLine(each.title || each.document_id))),
      make("p", { dir: "auto" }, shown(each.text)),
      make("span", { class: "soft small" }, `${count(each.num_characters)} characters`)))),
    make("p", { class: "actions" }, make("button", { type: "button", click: more }, "Other samples")),
  ];
}

function drawVersions(versions, { row, active }) {
  if (!versions.length) return [make("p", { class: "soft" }, "No version is built.")];
  const rows = versions.map((version) => make("tr", { class: version.is_active ? "is-active" : false },
    make("th", { scope: "row" }, version.digest ? make("code", {}, shorten(version.digest)) : "in a remote", " ",
      ...version.is_active ? [make("span", { class: "badge on" }, "switched on")] : []),
    make("td", { "data-label": "Built" }, makeTime(version.built_at ?? version.committed_at)),
    make("td", { "data-label": "Documents", class: "number" }, count(version.documents)),
    make("td", { "data-label": "Units", class: "number" }, count(version.words)),
    make("td", { "data-label": "Git" }, version.revision ? make("code", {}, version.revision.slice(0, 10)) : ""),
    make("td", { "data-label": "Where" }, version.where.join(", ")),
    make("td", { class: "act" }, ...version.is_active || !version.digest ? [] : [makeSwitch({ row, version, active, ...places })])));
  const heads = [["Digest"], ["Built"], ["Documents", "number"], ["Units", "number"], ["Git"], ["Where"], [""]];
  return [
    make("div", { class: "wide" }, make("table", { class: "list folds" },
      make("thead", {}, make("tr", {}, ...heads.map(([name, kind]) => make("th", { scope: "col", class: kind || false }, name)))),
      make("tbody", {}, ...rows))),
    makeDiffForm(versions),
  ];
}

function makeDiffForm(versions) {
  const known = versions.filter(({ digest }) => digest);
  const options = () => known.map(({ digest, is_active }) => make("option", { value: digest }, `${shorten(digest)}${is_active ? " (switched on)" : ""}`));
  const before = make("select", { id: "before" }, ...options());
  const after = make("select", { id: "after" }, make("option", { value: "prepared" }, "the prepared documents"), ...options());
  const result = make("div", { "aria-live": "polite" });
  const form = make("form", {}, make("h3", {}, "What differs"), make("div", { class: "row" },
    make("div", { class: "field" }, make("label", { for: "before" }, "From"), before),
    make("div", { class: "field" }, make("label", { for: "after" }, "To"), after),
    make("button", {}, "Show"),
  ), result);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    result.replaceChildren(make("p", { class: "soft" }, "Comparing…"));
    try {
      result.replaceChildren(...drawDiff(await getDiff(id, { before: before.value, after: after.value })));
    } catch (error) {
      result.replaceChildren(makeError(error));
    }
  });
  return form;
}

function drawDiff(found) {
  const [old, now] = found.words;
  const change = now - old;
  const list = (label, ids, number) => ids.length
    ? [make("h3", {}, `${count(number)} ${label}`), make("ul", { class: "ids" }, ...ids.map((each) => make("li", {}, make("bdi", {}, oneLine(each)))))] : [];
  return [
    makeFacts([
      ["Documents", `${count(found.num_added)} added, ${count(found.num_removed)} removed, ${count(found.num_changed)} changed, ${count(found.num_same)} the same`],
      ["Words", `${count(old)} → ${count(now)} (${change < 0 ? "−" : "+"}${count(Math.abs(change))})`],
      ["Chunks to encode", `${count(found.num_encoded)} of ${count(found.num_chunks)}${found.reason ? `: ${found.reason}` : ""}`],
      ...Object.entries(found.licences).map(([name, [was, is]]) => [`Licence ${name || "(none)"}`, `${count(was)} → ${count(is)} documents`]),
    ]),
    ...list("added", found.added, found.num_added),
    ...list("removed", found.removed, found.num_removed),
    ...list("changed", found.changed, found.num_changed),
  ];
}

function drawHistory(entries) {
  if (!entries.length) return [make("p", { class: "soft" }, "It was never switched on or off.")];
  return [make("ol", { class: "timeline" }, ...entries.slice(0, 30).map((entry) => make("li", {},
    make("div", {}, nameActive(entry.before), " → ", make("strong", {}, nameActive(entry.after))),
    make("div", { class: "soft small" }, makeTime(entry.time), " · ", oneLine(entry.who), " · ", make("code", {}, shown(entry.command))))))];
}

function drawFindings(findings) {
  if (!findings.length) return [make("p", {}, "Nothing is wrong. (A quick look; ", make("code", {}, `cog doctor ${id}`), " reads every row.)")];
  return findings.map((each) => make("div", { class: "finding" },
    make("p", {}, make("strong", {}, `${each.kind}, `), make("bdi", {}, oneLine(each.about)), ": ", shown(each.problem)),
    makeCommand(each.run)));
}

show()
  .then((active) => watchActive(active ? `${active.corpus} ${active.index}` : "", show))
  .catch((error) => {
    at("error").replaceChildren(makeError(error));
    document.querySelectorAll(".content").forEach((each) => each.replaceChildren());
  });
