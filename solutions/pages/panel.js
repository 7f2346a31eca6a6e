// The settings panel opens and closes; the focus goes where the reader goes.

import { composes } from "./keys.js";

/** Returns functions that open the panel at a field, and close it. */
export function createPanel(panel, button) {
  function show(open) {
    panel.hidden = !open;
    button.setAttribute("aria-expanded", String(open));
  }
  function open(field) {
    show(true);
    (field ?? panel.querySelector("select, input, textarea")).focus();
  }
  function close() {
    show(false);
    button.focus();
  }
  button.addEventListener("click", () => (panel.hidden ? open() : close()));
  panel.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || composes(event)) return;
    event.stopPropagation(); // it closes the panel; it does not stop the answer
    close();
  });
  return { open, close };
}
