// Blind studies: a list of them, one of them for who asks, or the cases for who judges.

import { getStudies } from "./api.js";
import { make, makeError } from "./dom.js";
import { showJudging } from "./judging.js";
import { showStudies, showStudy } from "./studies.js";

const place = document.getElementById("study");
const asked = new URLSearchParams(location.search);
const [study, token] = [asked.get("study"), asked.get("token")];

async function show() {
  if (study && token) return showJudging(place, { study, token });
  const { studies, problems } = await getStudies();
  if (!study) return showStudies(place, studies, problems);
  const found = studies.find((each) => each.study === study);
  if (found) return showStudy(place, found);
  throw Object.assign(new Error(`There is no study ${study}.`), { run: "" });
}

show().catch((error) => place.replaceChildren(
  make("h1", {}, "Studies"), makeError(error),
));
