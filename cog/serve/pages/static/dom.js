// Elements of the page; text of corpora is shown as text and never taken for markup.

// What changes the order of what stands around it, or is not seen at all.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff]/u;

/** Make an element: properties are set as attributes, functions as listeners. */
export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) {
      element.setAttribute(name, value);
    }
  }
  element.append(...children);
  return element;
}

/** Text with what cannot be seen written out, such as ⟨202E⟩. */
export function shown(text) {
  const fragment = document.createDocumentFragment();
  for (const part of text.split(new RegExp(`(${HIDDEN.source})`, "u"))) {
    if (part.length === 1 && HIDDEN.test(part)) {
      const code = part.codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
      fragment.append(make("span", { class: "escaped", title: `character U+${code}` }, code));
    } else if (part) fragment.append(part);
  }
  return fragment;
}

/** One line of text, for titles. */
export const oneLine = (text) => shown((text ?? "").split(/\s+/u).join(" ").trim());

/** Where a number of characters ends: offsets of corpora count code points, strings do not. */
export function skipCharacters(text, count, from = 0) {
  let at = from;
  for (let left = count; left > 0 && at < text.length; left -= 1) {
    at += text.codePointAt(at) > 0xffff ? 2 : 1;
  }
  return at;
}

/** A link, if the address is one of the web; else nothing. */
export function makeLink(address, text) {
  return /^https?:\/\/[^\s]+$/u.test(address ?? "")
    ? make("a", { href: address, rel: "noreferrer noopener", target: "_blank" }, text ?? address)
    : null;
}

export const formatShare = (value) => `${Math.round(100 * value)} %`;
export const formatCount = (count, noun) => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;

/** A probability with two digits that say something. */
export function formatProbability(value) {
  if (!(value > 0)) return "0";
  return value >= 0.001 ? value.toPrecision(2) : value.toExponential(1);
}

const COMMAND = /^(cog|dvc|git|mlflow|pip) /u; // what can be pasted; the rest is advice

/** What is wrong with the first field of a form that is, as an error; it can be seen then. */
export function findInvalid(form) {
  const field = form.querySelector("input:invalid, select:invalid, textarea:invalid");
  if (!field) return null;
  for (let at = field.closest("details"); at; at = at.parentElement.closest("details")) at.open = true;
  field.focus();
  return new Error(`${field.labels[0]?.textContent ?? field.id}: ${field.validationMessage}`);
}

/** What went wrong, in words, with the command that mends it. */
export function makeError(error) {
  const box = make("div", { class: "message bad", role: "alert" });
  // what to run stands below, to be copied
  const [words] = (error.message || String(error)).split(error.run ? `; next: ${error.run}` : "\n");
  box.append(make("p", {}, shown(words)));
  if (COMMAND.test(error.run)) box.append(make("p", {}, "Next:"), makeCommand(error.run));
  else if (error.run) box.append(make("p", {}, "Next: ", shown(error.run)));
  return box;
}

/** A command, with a button that copies it. */
export function makeCommand(command) {
  const button = make("button", { type: "button", click: () => copyText(command, button) }, "Copy");
  return make("div", { class: "command" }, make("code", {}, shown(command)), button);
}

/** Put text into the clipboard, and say so on the button. */
export async function copyText(text, button) {
  const label = button.dataset.label ?? button.textContent;
  button.dataset.label = label;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Not allowed here";
  }
  setTimeout(() => { button.textContent = label; }, 1600);
}
