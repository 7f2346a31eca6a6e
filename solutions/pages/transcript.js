// How the conversation looks. Text from the model and the server only ever becomes text nodes.

import { followEnd } from "./follow.js";

/** An element with a class and a text. */
export function element(name, className = "", text = "") {
  const made = document.createElement(name);
  if (className) made.className = className;
  made.textContent = text;
  return made;
}

/** The list of messages inside `log`. */
export function createTranscript(log, toEnd) {
  const change = followEnd(log, toEnd);
  const welcome = log.firstElementChild;

  return {
    clear: () => change(() => log.replaceChildren(welcome)),

    addQuestion(text) {
      welcome.remove();
      log.append(messageBox("user", "You", text));
      log.scrollTop = log.scrollHeight; // who sends wants to see what comes
    },

    /** An empty answer; what it returns changes it. */
    addAnswer() {
      const box = messageBox("answer", "", "");
      change(() => log.append(box));
      return answerView(box, change);
    },
  };
}

function messageBox(kind, name, text) {
  const box = element("article", `message ${kind}`);
  box.append(element("h2", "", name), element("p", "text", text));
  return box;
}

function answerView(box, change) {
  const text = document.createTextNode("");
  const meter = element("dl", "meter quiet");
  let note = null;
  box.querySelector(".text").append(text);
  box.append(meter);

  const dropNote = () => {
    note?.dispatchEvent(new Event("drop"));
    note?.remove();
    note = null;
  };

  return {
    /**
     * The model of that name begins to answer.
     * Screen readers wait while an answer is busy, and read it when it is whole.
     */
    begin: (name) => change(() => {
      box.setAttribute("aria-busy", "true");
      box.querySelector("h2").textContent = name;
      text.data = "";
      dropNote();
    }),
    append: (piece) => change(() => text.appendData(piece)),
    measure: (rows) => change(() => meter.replaceChildren(...rows.map(meterRow))),
    end: () => box.removeAttribute("aria-busy"),

    /** Say what went wrong, with buttons that help. */
    complain: (words, ...buttons) => change(() => {
      dropNote();
      note = element("div", "note");
      const message = element("p", "", words);
      message.setAttribute("role", "alert");
      note.append(message, ...buttons);
      box.append(note);
      for (const button of buttons) note.addEventListener("drop", () => button.remove());
    }),

    /** Take the buttons away: the conversation has gone on. */
    settle: () => note?.dispatchEvent(new Event("drop")),
  };
}

function meterRow([name, value]) {
  const row = element("div");
  row.append(element("dt", "", name), element("dd", "", value));
  return row;
}
