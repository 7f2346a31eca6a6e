// Server-sent events, from the bytes of a response to the data of each event.
// The format: https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream

// A carriage return at the very end may be the first half of a line end: it waits for more.
const LINE_END = /\r\n|\n|\r(?!$)/;

/**
 * Yields the data of each event, a string, as soon as its blank line is here.
 *
 * Network chunks end anywhere: inside a line, between "\r" and "\n", inside a character. An event
 * that never gets its blank line is dropped, as the format wants it. Comments (keep-alives) and
 * fields other than "data" are passed over.
 */
export async function* eventData(bytes) {
  let data = [];
  for await (const line of lines(bytes)) {
    if (line === "") {
      if (data.length) yield data.join("\n");
      data = [];
    } else if (line === "data" || line.startsWith("data:")) {
      data.push(line.slice(5).replace(/^ /, ""));
    }
  }
}

async function* lines(bytes) {
  let rest = "";
  for await (const text of decoded(bytes)) {
    const parts = (rest + text).split(LINE_END);
    rest = parts.pop();
    yield* parts;
  }
  if (rest.endsWith("\r")) yield rest.slice(0, -1);
}

// Not `for await (... of bytes)`: Safari's streams cannot be iterated.
async function* decoded(bytes) {
  const reader = bytes.getReader();
  const decoder = new TextDecoder();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield decoder.decode(value, { stream: true }); // keeps the first bytes of a split character
    }
  } finally {
    await reader.cancel().catch(() => {}); // who stops reading early closes the connection
  }
}
