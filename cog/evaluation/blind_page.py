"""The page that graders fill: cases go in, one self-contained HTML file comes out.

Answers stay in the browser until they are saved as the CSV that the import reads.
"""

from collections.abc import Sequence
from html import escape

from cog.evaluation.blind import LEFT, NEITHER, QUESTIONS, RIGHT, SHEET_COLUMNS, Item

ASKED = {
    "fluency": "Which is more fluent and easier to understand?",
    "informativeness": "Which is more diverse and holds more interesting content?",
    "overall": "Which is better, all in all?",
}
CHOICES = ((LEFT, "A"), (NEITHER, "no preference"), (RIGHT, "B"))
STYLE = """
:root { --ink: #1f2933; --soft: #66717d; --line: #d9dee3; --page: #fff; --mark: #2b6cb0; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e9ee; --soft: #98a4b0; --line: #38424c;
  --page: #14191e; --mark: #7db3e8; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 70rem; padding: 1.5rem; background: var(--page);
  color: var(--ink); font: 16px/1.6 system-ui, sans-serif; }
h1 { font-size: 1.4rem; margin: 0; }
.soft { color: var(--soft); }
section { border-top: 1px solid var(--line); padding: 1.4rem 0; }
section.done h2::after { content: " ✓"; color: var(--mark); }
h2 { font-size: 1rem; margin: 0 0 .4rem; } h3 { font-size: .95rem; margin: 0 0 .2rem; }
p.text { white-space: pre-wrap; overflow-wrap: anywhere; margin: 0; }
p.prompt { font-weight: 600; margin-bottom: 1rem; }
.sides { display: grid; gap: 1.6rem; grid-template-columns: repeat(auto-fit, minmax(18rem, 1fr)); }
fieldset { border: 0; padding: 0; margin: 1rem 0 0; display: flex; flex-wrap: wrap;
  gap: .3rem 1.2rem; }
legend { padding: 0; float: left; min-width: 28.5rem; max-width: 100%; }
label { cursor: pointer; } input { accent-color: var(--mark); }
footer { position: sticky; bottom: 0; background: var(--page); border-top: 1px solid var(--line);
  padding: .8rem 0; display: flex; gap: 1rem; align-items: center; }
button { font: inherit; padding: .35rem 1.1rem; border: 1px solid var(--mark); border-radius: .4rem;
  background: var(--mark); color: var(--page); cursor: pointer; }
"""
SCRIPT = """
const form = document.querySelector("form"), count = document.getElementById("count");
const sections = [...document.querySelectorAll("section")];
const store = "blind-" + form.dataset.study;
const read = () => Object.fromEntries(new FormData(form));
function update() {
  const answers = read();
  let done = 0;
  for (const section of sections) {
    const full = QUESTIONS.every(q => answers[section.id + " " + q]);
    section.classList.toggle("done", full);
    done += full;
  }
  count.textContent = done + " of " + sections.length + " done";
  try { localStorage.setItem(store, JSON.stringify(answers)); } catch { /* not kept */ }
}
try {
  for (const [name, value] of Object.entries(JSON.parse(localStorage.getItem(store) || "{}"))) {
    const input = form.querySelector(`input[name="${CSS.escape(name)}"][value="${value}"]`);
    if (input) input.checked = true;
  }
} catch { /* nothing was kept */ }
form.addEventListener("change", update);
form.addEventListener("submit", event => {
  event.preventDefault();
  const answers = read();
  const lines = [["item", ...QUESTIONS], ...sections.map(
    section => [section.id, ...QUESTIONS.map(q => answers[section.id + " " + q] || "")])];
  const link = document.createElement("a");
  const text = lines.map(line => line.join(",")).join("\\n") + "\\n";
  link.href = URL.createObjectURL(new Blob([text], {type: "text/csv"}));
  link.download = "answers.csv";
  link.click();
});
update();
"""


def write_blind_page(items: Sequence[Item], *, study: str) -> str:
    """Write the cases as a page with three questions each.

    :param items: The cases.
    :param study: Digest of the study.
    :returns: HTML.
    """
    questions = ", ".join(f'"{question}"' for question in QUESTIONS)
    sections = "\n".join(_write_item(item) for item in items)
    columns = ", ".join(("item", *SHEET_COLUMNS[-len(QUESTIONS) :]))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Which text is better?</title>
<style>{STYLE}</style>
</head>
<body>
<h1>Which text is better?</h1>
<p class="soft">Each case is the beginning of a text and two continuations, A and B, in random
order. Answer three questions about each; leave a case empty if you cannot judge it. Your answers
stay on this computer until you save them ({columns}).</p>
<form data-study="{escape(study)}">
{sections}
<footer><button>Save answers.csv</button><span id="count" class="soft"></span></footer>
</form>
<script>const QUESTIONS = [{questions}];{SCRIPT}</script>
</body>
</html>
"""


def _write_item(item: Item) -> str:
    asked = "".join(_write_question(item, question) for question in QUESTIONS)
    sides = "".join(
        f'<div><h3>{name}</h3><p class="text">{escape(text)}</p></div>'
        for name, text in (("A", item.text_a), ("B", item.text_b))
    )
    return (
        f'<section id="{escape(item.item)}"><h2>Case {int(item.item)}</h2>'
        f'<p class="text prompt">{escape(item.prompt)} …</p><div class="sides">{sides}</div>'
        f"{asked}</section>"
    )


def _write_question(item: Item, question: str) -> str:
    inputs = "".join(
        f'<label><input type="radio" name="{escape(item.item)} {question}" value="{value}"> '
        f"{label}</label>"
        for value, label in CHOICES
    )
    return f"<fieldset><legend>{ASKED[question]}</legend>{inputs}</fieldset>"
