// What the server is asked; the one module that knows its routes.

/** A failure that the server states: what was wanted and found, and what to run. */
export class ServerError extends Error {
  constructor(error, status) {
    super(error?.message || `The server answered with status ${status}.`);
    this.run = error?.run || "";
    this.param = error?.param || "";
    this.status = status;
  }
}

const LOST = "The server does not answer: it was stopped, or the connection is gone.";

async function ask(address, options) {
  let response;
  try {
    response = await fetch(address, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw Object.assign(new Error(LOST), { run: "cog serve" });
  }
  if (response.ok) return response;
  const content = await response.json().catch(() => null);
  throw new ServerError(content?.error, response.status);
}

const getJson = async (address) => (await ask(address)).json();

async function post(address, content, { signal } = {}) {
  return ask(address, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(content),
    signal,
  });
}

const part = encodeURIComponent;
function query(values) {
  const given = Object.entries(values).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return given.length ? `?${new URLSearchParams(given)}` : "";
}

/** Read server-sent events: name and parsed data of each. */
async function* readEvents(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    rest += value;
    const blocks = rest.split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      let name = "";
      let data = "";
      for (const line of block.split("\n")) {
        if (line.startsWith("event: ")) name = line.slice(7);
        else if (line.startsWith("data: ")) data += line.slice(6);
      }
      if (name) yield { name, data: JSON.parse(data) };
    }
  }
}

/** Write one text; `on` is told of its beginning and of every segment; the whole comes back. */
export async function generate(request, { on, signal }) {
  // an address gives its text again, and the seconds of a side are its own
  const response = await post("/generate", { ...request, stream: true, deterministic: true }, { signal });
  let generation = null;
  for await (const { name, data } of readEvents(response.body)) {
    if (name === "error") throw new ServerError(data.error, 500);
    if (name === "generation") generation = data.generation;
    if (name === "done" && generation) return generation;
    on[name]?.(data);
  }
  throw Object.assign(new Error("The connection ended before the text did."), { run: "" });
}

/** The part of a document around a copy, of the version that was copied from. */
export function getDocument({ corpus, document_id, index }, { start, end } = {}) {
  // not in the path: a browser takes an id ".." for a way up, however it is encoded
  return getJson(`/documents/${part(corpus)}${query({ id: document_id, index, start, end })}`);
}

export const getModels = async () => (await getJson("/v1/models")).data;
export const getModel = (id) => getJson(`/v1/models/${part(id)}`);
export const getSettings = (corpus) => getJson(`/api/settings${query({ corpus })}`);
export const getResults = () => getJson("/api/results");

export const getCorpora = () => getJson("/api/corpora");
export const getCorpus = (id) => getJson(`/api/corpora/${part(id)}`);
export const getSamples = async (id, values) => (await getJson(`/api/corpora/${part(id)}/samples${query(values)}`)).samples;
export const getVersions = async (id) => (await getJson(`/api/corpora/${part(id)}/versions`)).versions;
export const getDiff = (id, values) => getJson(`/api/corpora/${part(id)}/diff${query(values)}`);
export const getHistory = async (id) => (await getJson(id ? `/api/corpora/${part(id)}/history` : "/api/history")).entries;
export const getFindings = async (id) => (await getJson(id ? `/api/corpora/${part(id)}/findings` : "/api/findings")).findings;
export const switchCorpus = async (content) => (await post("/api/switch", content)).json();
export const rollback = async () => (await post("/api/rollback", {})).json();

export const getStudies = () => getJson("/api/studies");
export const makeStudy = async (content) => (await post("/api/studies", content)).json();
export const addRater = async (study, name) => (await post(`/api/studies/${part(study)}/raters`, { name })).json();
export const getItems = (study, token) => getJson(`/api/studies/${part(study)}/items${query({ token })}`);
export const judge = async (study, content) => (await post(`/api/studies/${part(study)}/judgements`, content)).json();
export const getVerdict = (study) => getJson(`/api/studies/${part(study)}/result`);
export const answersAddress = (study, rater) => `/api/studies/${part(study)}/answers${query({ rater })}`;

export const logIn = (key) => post("/api/login", { key });
export const logOut = () => post("/api/logout", {});
