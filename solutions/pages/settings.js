// The settings form: what it asks of the server, and where it is kept until the tab closes.

const NUMBERS = [
  "temperature", "top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty",
  "frequency_penalty", "max_tokens", "seed",
];
const KEPT_AS = "chat-settings";

/** The fields of a request body that the form fills; an empty field is not sent. */
export function requestFields(form) {
  const fields = {};
  if (form.elements.model.value) fields.model = form.elements.model.value;
  for (const name of NUMBERS) {
    const { value } = form.elements[name];
    if (value !== "") fields[name] = Number(value);
  }
  const stop = form.elements.stop.value.split("\n").filter((line) => line !== "");
  if (stop.length) fields.stop = stop.map(unescaped);
  return fields;
}

// A line holds one stop string, so a line end in it is written as \n.
function unescaped(text) {
  const signs = { n: "\n", t: "\t", "\\": "\\" };
  return text.replace(/\\([nt\\])/g, (_, sign) => signs[sign]);
}

/** Puts the names of the models into the form's list; the choice stays where it can. */
export function showModels(select, names) {
  if (names.join("\n") === [...select.options].map(({ value }) => value).join("\n")) return;
  const chosen = select.value || select.dataset.kept;
  select.replaceChildren(...names.map((name) => new Option(name, name, false, name === chosen)));
}

/** Fills the form with what this tab had before, and keeps each change. */
export function keep(form) {
  const kept = read();
  for (const [name, value] of Object.entries(kept)) {
    if (form.elements[name]) form.elements[name].value = value;
  }
  form.elements.model.dataset.kept = kept.model ?? "";
  const save = () => write(Object.fromEntries(new FormData(form)));
  form.addEventListener("input", save);
  form.addEventListener("reset", () => setTimeout(save)); // the fields are emptied after this event
}

// A browser may forbid the storage, and what is in it may be damaged: the page does without.
function read() {
  try {
    return JSON.parse(sessionStorage.getItem(KEPT_AS)) ?? {};
  } catch {
    return {};
  }
}

function write(fields) {
  try {
    sessionStorage.setItem(KEPT_AS, JSON.stringify(fields));
  } catch {
    // full or forbidden: this tab forgets
  }
}
