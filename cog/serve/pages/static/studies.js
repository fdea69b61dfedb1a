// Studies for who asks: new ones, links for those who judge, what they say.

import { addRater, answersAddress, getResults, getVerdict, makeStudy } from "./api.js";
import { copyText, formatCount, make, makeCommand, makeError, oneLine } from "./dom.js";

const SPACE = "http://www.w3.org/2000/svg";
const addressOf = (study) => `/study?study=${encodeURIComponent(study)}`;
const nameSystems = (systems) => systems.map((each) => make("bdi", {}, oneLine(each)));

/** List the studies, with a form for a new one. */
export async function showStudies(place, studies, problems) {
  const form = make("div", {}, make("p", { class: "soft" }, "Reading the evaluations…"));
  place.replaceChildren(
    make("h1", {}, "Studies"),
    make("p", { class: "lead" }, "People read pairs of texts in random order, without knowing what wrote which, and say which is better."),
    ...studies.length ? [makeList(studies)] : [make("p", { class: "empty" }, "There is no study yet.")],
    ...problems.map((each) => makeError(new Error(each))),
    make("h2", {}, "New study"), form,
  );
  try {
    const { groups, run } = await getResults();
    const fitting = groups.filter((group) => group.evaluations.length > 1);
    form.replaceChildren(...fitting.length ? [makeForm(fitting)] : [
      make("p", {}, "A study needs two evaluations of the same prompts under one protocol: of two systems, or of two corpora with --prompts-of one of them. Begin with:"),
      makeCommand(run),
    ]);
  } catch (error) {
    form.replaceChildren(makeError(error));
  }
}

function makeList(studies) {
  const rows = studies.map(({ study, systems, num_cases: numCases, raters }) => make("tr", {},
    make("th", { scope: "row" }, make("a", { href: addressOf(study) }, study.slice(0, 12))),
    make("td", { "data-label": "Compared" }, nameSystems(systems)[0], " and ", nameSystems(systems)[1]),
    make("td", { "data-label": "Cases", class: "number" }, String(numCases)),
    make("td", { "data-label": "Judged by" }, raters.map(({ name, num_done: done }) => `${name} (${done})`).join(", ") || "nobody yet")));
  return make("div", { class: "wide" }, make("table", { class: "list folds" },
    make("thead", {}, make("tr", {}, ...["Study", "Compared", "Cases", "Judged by"].map((name) => make("th", { scope: "col", class: name === "Cases" ? "number" : false }, name)))),
    make("tbody", {}, ...rows)));
}


function makeForm(groups) {
  const field = (id, label, control) => make("div", { class: "field" }, make("label", { for: id }, label), control);
  const group = make("select", { id: "group" }, ...groups.map(({ prompts, protocol }, i) => make("option", { value: i }, `prompts of ${prompts}, protocol ${protocol.name} ${protocol.digest.slice(0, 8)}`)));
  const [first, second] = ["first", "second"].map((id) => make("select", { id }));
  const num = make("input", { id: "num", type: "number", min: 1, value: 100, required: true });
  const seed = make("input", { id: "order", type: "number", min: 0, value: 0, required: true });
  const error = make("div");
  const fill = () => {
    const { evaluations } = groups[group.value];
    for (const [i, select] of [first, second].entries()) {
      const sides = [...new Set(evaluations.map(({ side }) => side))];
      select.replaceChildren(...sides.map((side) => make("option", { value: side }, side)));
      select.selectedIndex = Math.min(i, sides.length - 1);
    }
  };
  group.addEventListener("change", fill);
  fill();
  const form = make("form", { class: "new-study" },
    field("group", "Measured on", group), field("first", "First", first), field("second", "Second", second),
    make("div", { class: "row" }, field("num", "Pairs", num), field("order", "Seed of the order", seed)),
    error, make("div", { class: "actions" }, make("button", { class: "main-button" }, "Make the study")));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const { prompts, protocol } = groups[group.value];
    try {
      const { study } = await makeStudy({
        systems: [first.value, second.value], num_prompts: Number(num.value), seed: Number(seed.value),
        prompts_of: prompts, protocol: protocol.digest,
      });
      location.assign(addressOf(study));
    } catch (failure) {
      error.replaceChildren(makeError(failure));
    }
  });
  return form;
}

/** One study: who judges, and what they say. */
export function showStudy(place, found) {
  const { study, num_cases: numCases } = found;
  const raters = make("div", {});
  const error = make("div");
  const name = make("input", { id: "name", required: true, maxlength: 64, autocomplete: "off" });
  const form = make("form", { class: "row asking" },
    make("div", { class: "field" }, make("label", { for: "name" }, "Name of who judges"), name), make("button", {}, "Make a link"));
  const draw = () => raters.replaceChildren(...found.raters.length ? [makeRaters(found)] : [make("p", { class: "soft" }, "Nobody judges yet. Make a link for everyone who should.")]);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    error.replaceChildren();
    try {
      const made = await addRater(study, name.value.trim());
      if (!found.raters.some((each) => each.token === made.token)) found.raters.push({ ...made, num_done: 0 });
      form.reset();
      draw();
    } catch (failure) {
      error.replaceChildren(makeError(failure));
    }
  });
  draw();
  const result = make("div", {}, make("p", { class: "soft" }, "Counting…"));
  const details = make("details", {}, make("summary", {}, "Show the result, which names the systems"), result);
  details.addEventListener("toggle", async () => {
    if (!details.open) return;
    try {
      result.replaceChildren(...drawVerdict(await getVerdict(study)));
    } catch (failure) {
      result.replaceChildren(makeError(failure));
    }
  });
  place.replaceChildren(
    make("p", { class: "small" }, make("a", { href: "/study" }, "Studies")),
    make("h1", {}, `Study ${study.slice(0, 12)}`), make("p", { class: "lead" }, `${numCases} pairs in random order. Whoever judges needs only the link; answers are kept with every key.`),
    make("h2", {}, "Who judges"), raters, form, error, make("h2", {}, "Result"), details,
  );
}

function makeRaters({ study, num_cases: numCases, raters }) {
  const rows = raters.map(({ name, link, num_done: done }) => {
    const whole = new URL(link, location.href).href;
    const button = make("button", { type: "button", click: () => copyText(whole, button) }, "Copy link");
    return make("tr", {},
      make("th", { scope: "row" }, oneLine(name)),
      make("td", { "data-label": "Done" }, `${done} of ${numCases}`),
      make("td", {}, make("div", { class: "link-cell" }, make("a", { href: link }, "Open"), button)),
      make("td", { class: "act" }, make("a", { href: answersAddress(study, name), download: `${name}.csv` }, "Answers as CSV")));
  });
  return make("div", { class: "wide" }, make("table", { class: "list folds" },
    make("thead", {}, make("tr", {}, ...["Name", "Done", "Link", ""].map((each) => make("th", { scope: "col" }, each)))),
    make("tbody", {}, ...rows)));
}

function drawVerdict({ systems, questions }) {
  const judged = questions.filter((each) => each.num_cases);
  if (!judged.length) return [make("p", { class: "soft" }, "Nothing is judged yet.")];
  const [first, second] = systems;
  return judged.map((each) => {
    const isMore = each.p_value < 0.05;
    const ahead = each.num_better > each.num_worse ? first : second;
    const agreement = each.agreement === null ? [] : [`Krippendorff's alpha ${each.agreement.toFixed(2)}`];
    return make("section", { class: "verdict" }, make("h3", {}, each.question), drawBar(each),
      make("div", { class: "key-line" },
        make("span", {}, make("bdi", {}, oneLine(first)), ` better: ${each.num_better}`),
        make("span", {}, `no preference: ${each.num_neither}`),
        make("span", {}, make("bdi", {}, oneLine(second)), ` better: ${each.num_worse}`)),
      make("p", { class: "soft small" }, [
        `Sign test: p = ${each.p_value.toPrecision(2)}`,
        isMore ? `${ahead} is preferred by more than chance` : "no more than chance",
        formatCount(each.num_cases, "case"), `${each.num_graders} judging`, ...agreement,
      ].join(" · ")));
  });
}

function drawBar({ num_better: better, num_neither: neither, num_worse: worse }) {
  const total = better + neither + worse;
  const svg = document.createElementNS(SPACE, "svg");
  svg.setAttribute("viewBox", "0 0 100 10");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("aria-hidden", "true");
  let x = 0;
  for (const [kind, number] of [["first", better], ["none", neither], ["second", worse]]) {
    const width = (100 * number) / total;
    const bar = document.createElementNS(SPACE, "rect");
    for (const [name, value] of Object.entries({ class: kind, x, y: 0, width, height: 10 })) bar.setAttribute(name, value);
    svg.append(bar);
    x += width;
  }
  return svg;
}
