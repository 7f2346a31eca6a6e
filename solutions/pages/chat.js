// The chat page: what the reader does, and what follows.

import { listModels, streamChat } from "./api.js";
import { Failure } from "./failures.js";
import { composes } from "./keys.js";
import { createMeter } from "./meter.js";
import { createPanel } from "./panel.js";
import { retryButton } from "./retry.js";
import { keep, requestFields, showModels } from "./settings.js";
import { createTranscript, element } from "./transcript.js";

const find = (id) => document.getElementById(id);
const prompt = find("prompt");
const form = find("wishes");
const send = find("send");
const stop = find("stop-answer");
const transcript = createTranscript(find("log"), find("to-end"));
const panel = createPanel(find("settings"), find("open-settings"));

let exchanges = []; // {question, answer, view}: what has been said, in order
let running = null; // the AbortController of the answer that is being written
let trouble = ""; // why the list of models is not here

/** The messages of a request: the system prompt, what was answered so far, the new question. */
function messagesFor(exchange) {
  const system = form.elements.system.value.trim();
  const messages = system ? [{ role: "system", content: system }] : [];
  for (const { question, answer } of exchanges.slice(0, exchanges.indexOf(exchange))) {
    if (!answer) continue; // it failed before its first word: the model never saw the question
    messages.push({ role: "user", content: question }, { role: "assistant", content: answer });
  }
  return [...messages, { role: "user", content: exchange.question }];
}

function submit() {
  if (running) return say("An answer is being written. Escape stops it.");
  if (!prompt.value.trim()) return say("Write a message first.");
  if (!form.checkValidity()) {
    panel.open();
    form.reportValidity();
    return say("One of the settings is not possible.");
  }
  exchanges.at(-1)?.view.settle();
  const exchange = { question: prompt.value, answer: "" };
  transcript.addQuestion(exchange.question);
  exchange.view = transcript.addAnswer();
  exchanges.push(exchange);
  prompt.value = "";
  return ask(exchange);
}

async function ask(exchange) {
  const controller = new AbortController();
  const meter = createMeter();
  exchange.answer = "";
  exchange.view.begin(form.elements.model.value || "Model");
  exchange.view.measure([]);
  setRunning(controller, "The answer is being written.");
  let ended = "";
  let words = "The answer is complete.";
  let failure = null;
  try {
    const body = { ...requestFields(form), messages: messagesFor(exchange) };
    for await (const chunk of streamChat(body, form.elements.key.value, controller.signal)) {
      ended = take(chunk, exchange, meter) ?? ended;
    }
  } catch (error) {
    const stopped = controller.signal.aborted;
    ended = stopped ? "stopped by you" : "error";
    words = stopped ? "Stopped." : ""; // an error says so itself
    failure = stopped ? null : error;
  }
  exchange.view.measure(meter.read(ended));
  exchange.view.end();
  if (failure) complain(exchange, failure); // no sooner: what is busy is not announced
  if (running === controller) setRunning(null, words);
}

/** One chunk of the stream: text goes to the page, numbers to the meter. Returns why it ended. */
function take(chunk, exchange, meter) {
  if (chunk.usage) meter.usage(chunk.usage);
  const choice = chunk.choices?.[0];
  const text = choice?.delta?.content;
  if (text) {
    meter.piece();
    exchange.answer += text;
    exchange.view.append(text);
    exchange.view.measure(meter.read());
  }
  return choice?.finish_reason;
}

function complain(exchange, error) {
  const buttons = error.lasts ? [] : [retryButton(error.wait ?? 0, () => retry(exchange))];
  if (error.needsKey) buttons.push(keyButton());
  if (error.status === 404) loadModels(); // the server has come back with another model
  const words = error instanceof Failure ? error.message : `The page met an error: ${error.message}`;
  exchange.view.complain(words, ...buttons);
}

function retry(exchange) {
  if (running) return;
  ask(exchange);
  stop.focus(); // the button that was pressed is gone
}

function keyButton() {
  const button = element("button", "", "Enter the key");
  button.type = "button";
  button.addEventListener("click", () => panel.open(form.elements.key));
  return button;
}

/** Show Stop or Send. A focus on the one goes over to the other, and is never lost. */
function setRunning(controller, words) {
  running = controller;
  const [shown, gone] = controller ? [stop, send] : [send, stop];
  shown.hidden = false;
  if (document.activeElement === gone) shown.focus();
  gone.hidden = true;
  say(words);
}

function say(words) {
  find("status").textContent = words;
}

function startAnew() {
  running?.abort();
  setRunning(null, "");
  exchanges = [];
  transcript.clear();
  prompt.focus();
}

async function loadModels() {
  const before = trouble;
  try {
    showModels(form.elements.model, await listModels(form.elements.key.value));
    trouble = "";
  } catch (error) {
    trouble = error.message;
  }
  const isOld = find("status").textContent === before; // what an answer has said stays
  if (!running && (trouble || isOld)) say(trouble);
}

find("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  submit();
});
prompt.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || composes(event)) return;
  event.preventDefault();
  submit();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !composes(event)) running?.abort();
});
stop.addEventListener("click", () => running?.abort());
find("new").addEventListener("click", startAnew);
find("close-settings").addEventListener("click", panel.close);
form.addEventListener("submit", (event) => event.preventDefault());
form.elements.key.addEventListener("change", loadModels);
form.elements.model.addEventListener("focus", loadModels); // the server may have another one now

keep(form);
prompt.focus();
loadModels();
