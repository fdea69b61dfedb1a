// Kept evaluations: groups that may be compared, each with drawings and the numbers behind them.

import { getResults } from "./api.js";
import { drawRows, drawSizes, formatNumber } from "./charts.js";
import { make, makeCommand, makeError, makeLink, oneLine, shown } from "./dom.js";
import { makeTime, shorten } from "./registry.js";

const at = (id) => document.getElementById(id);
// what is drawn, in this order; the rest stands in the table
const DRAWN = {
  "likelihood/per-word": ["Likelihood of what really follows", "its perplexity, per word; lower is better"],
  "quality/mauve": ["MAUVE", "how near the texts are to what really follows; 1 is the same"],
  "repetition/diversity": ["Diversity", "little repetition; best near that of what really follows"],
  "perplexity/generated": ["Perplexity", "best near that of what really follows, not lowest"],
  "copies/tokens": ["Copied", "share of the tokens"],
  "latency/tokens-per-second": ["Speed", "tokens a second"],
};

const nameMetric = (metric) => DRAWN[metric]?.[0] ?? metric;

function drawPanel(metric, rows, { bySize }) {
  const [name, meaning] = DRAWN[metric] ?? [metric, ""];
  const sized = rows.filter((row) => row.num_index_words > 0);
  return make("figure", {},
    make("figcaption", {}, name, make("span", { class: "small" }, meaning)),
    bySize && sized.length > 1 ? drawSizes(sized) : drawRows(rows));
}

function hasSizes(group) {
  const systems = new Set(group.evaluations.map((each) => each.system));
  const sizes = new Set(group.evaluations.map((each) => each.num_index_words).filter(Boolean));
  return systems.size === 1 && sizes.size > 1;
}

function drawGroup(group) {
  const { protocol, prompts } = group;
  const { fields } = protocol;
  const shownMetrics = Object.keys(DRAWN).filter((metric) => group.metrics.includes(metric));
  const metrics = shownMetrics.length ? shownMetrics : group.metrics.slice(0, 6);
  const panels = make("div", { class: "panels" });
  const fill = (bySize) => panels.replaceChildren(...metrics.map((metric) => (
    drawPanel(metric, group.rows.filter((row) => row.metric === metric), { bySize }))));
  const section = make("section", { class: "group" },
    make("h2", {}, "Prompts of ", make("bdi", {}, oneLine(prompts))),
    make("p", { class: "soft small" }, `Protocol ${protocol.name} ${protocol.digest.slice(0, 12)}: ${fields.prompt_tokens} tokens continued by ${fields.generation_tokens}`));
  if (hasSizes(group)) section.append(makeChoice(fill));
  else fill(false);
  if (group.rows.some((row) => row.is_better)) section.append(make("p", { class: "soft small" }, "A filled dot is better than every other by more than chance."));
  section.append(panels, makeTable(group), makeEvaluations(group));
  return section;
}

function makeChoice(fill) {
  const buttons = [["By corpus", false], ["By size of the index", true]].map(([label, bySize]) => {
    const button = make("button", { type: "button", click: () => choose(bySize) }, label);
    button.bySize = bySize;
    return button;
  });
  function choose(bySize) {
    buttons.forEach((button) => button.setAttribute("aria-pressed", String(button.bySize === bySize)));
    fill(bySize);
  }
  choose(true);
  return make("div", { class: "choice", role: "group", "aria-label": "Drawn" }, ...buttons);
}

function makeTable(group) {
  const cell = (metric, label) => {
    const row = group.rows.find((each) => each.metric === metric && each.label === label);
    if (!row) return make("td");
    const interval = row.low < row.high ? `${formatNumber(row.low)} to ${formatNumber(row.high)}, ` : "";
    return make("td", {}, make("span", { class: row.is_better ? "best" : false }, formatNumber(row.mean), row.is_better ? " ★" : ""),
      make("span", { class: "small" }, `${interval}n = ${row.num_texts}`),
      ...row.note ? [make("span", { class: "small" }, shown(row.note))] : []);
  };
  return make("details", {}, make("summary", {}, "All scores as numbers"),
    make("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "All scores" }, make("table", { class: "list scores" },
      make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "Score"), ...group.labels.map((label) => make("th", { scope: "col" }, oneLine(label))))),
      make("tbody", {}, ...group.metrics.map((metric) => make("tr", {},
        make("th", { scope: "row" }, nameMetric(metric), ...nameMetric(metric) === metric ? [] : [make("span", { class: "small" }, metric)]),
        ...group.labels.map((label) => cell(metric, label))))))),
    make("p", { class: "soft small" }, "Interval of 95 % and number of texts below each score. ★: better than every other by more than chance."));
}

function makeEvaluations(group) {
  return make("details", {}, make("summary", {}, "Evaluations and runs"),
    make("div", { class: "wide" }, make("table", { class: "list folds" },
      make("thead", {}, make("tr", {}, ...["Evaluation", "System", "Index", "When", "MLflow"].map((name) => make("th", { scope: "col" }, name)))),
      make("tbody", {}, ...group.evaluations.map((each) => make("tr", {},
        make("th", { scope: "row" }, oneLine(each.label), ...each.is_current ? [] : [" ", make("span", { class: "badge bad" }, "of an earlier index")]),
        make("td", { "data-label": "System" }, each.system),
        make("td", { "data-label": "Index" }, each.index ? make("code", {}, shorten(each.index)) : "none"),
        make("td", { "data-label": "When" }, makeTime(each.created_at)),
        make("td", { "data-label": "MLflow" }, each.run_url ? makeLink(each.run_url, "run") : each.run_id ? make("code", {}, each.run_id) : "not logged")))))),
    ...group.evaluations.some((each) => each.run_id && !each.run_url)
      ? [make("p", { class: "soft small" }, "To see the runs:"), makeCommand("mlflow ui --backend-store-uri sqlite:///mlflow.db")] : []);
}

async function show() {
  const { groups, notes, problems, run } = await getResults();
  const parts = [];
  if (!groups.length) {
    // `run` evaluates, or does what has to be done before
    const how = run.startsWith("cog evaluate") ? "One takes some minutes on two cores:" : "Before one can be made:";
    parts.push(make("div", { class: "empty" }, make("p", {}, `No evaluation is kept here yet. ${how}`), makeCommand(run)));
  }
  parts.push(...groups.map(drawGroup));
  if (notes.length || problems.length) {
    parts.push(make("section", { class: "group" }, make("h2", {}, "To be known"),
      make("ul", {}, ...[...problems, ...notes].map((each) => make("li", {}, shown(each))))));
  }
  at("results").replaceChildren(...parts);
}

show().catch((error) => {
  at("results").replaceChildren();
  at("error").replaceChildren(makeError(error));
});
