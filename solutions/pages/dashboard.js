// The dashboard: each second /health and /metrics, and what they say in lines, words and numbers.

import { addPanel, put } from "./figureview.js";
import { createHistory } from "./history.js";
import { PANELS, spoken } from "./panels.js";
import { get, poll } from "./poll.js";
import { parse } from "./prometheus.js";
import { stateOf } from "./state.js";
import { showCounter, showFigures } from "./tables.js";

const SPAN = 180; // seconds that the charts go back; they begin with a minute, and widen
const PATIENCE = 5; // seconds to wait for an answer of the server

const find = (id) => document.getElementById(id);
const history = createHistory(SPAN);
const show = PANELS.map((panel) => addPanel(find("panels"), panel));
let read = false; // at least one reading is there to be shown

async function ask() {
  const [health, metrics] = await Promise.all([get("health", PATIENCE), get("metrics", PATIENCE)]);
  const isNew = metrics?.status === 200;
  if (isNew) {
    history.add(metrics.at, parse(metrics.text)); // not "now": /health may have been the slower one
    read = true;
  }
  document.body.classList.toggle("stale", !isNew);
  tell(...stateOf(health, metrics));
  render(); // without a new reading, too: time goes on, and the gap shows
}

/** Only a change is written, so that a screen reader says it once. */
function tell(state, words) {
  const line = find("state");
  if (line.dataset.state === state && line.dataset.words === words) return;
  const time = new Date().toLocaleTimeString([], { timeStyle: "medium" });
  line.dataset.state = state;
  line.dataset.words = words;
  line.textContent = `${words} Since ${time}.`;
}

function render() {
  if (!read) return;
  const window = Number(find("window").value);
  const points = history.points(window);
  const now = performance.now() / 1000;
  const minutes = Math.ceil((now - points[0].at) / 60) || 1;
  const view = { now, span: Math.min(SPAN, minutes * 60), window };
  for (const showPanel of show) showPanel(points, view);
  showFigures(find("figures"), PANELS, points);
  showCounter(find("ended"), history.newest(window), "llm_requests_total", "finish_reason");
  showCounter(find("rejected"), history.newest(window), "llm_requests_rejected_total", "reason");
  for (const head of document.querySelectorAll(".recent")) put(head, `in ${spoken(window)}`);
}

find("window").addEventListener("change", render);
addEventListener("resize", render);
poll(ask, 1);
