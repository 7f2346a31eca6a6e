// What can go wrong between page and server, in words that say what to do.

const WORDS = {
  400: "The server refused this request",
  401: "The server wants an API key, or another one",
  404: "The server does not have this",
  408: "The server waited too long for the request",
  413: "This is longer than the server accepts",
  429: "The server is asked too often",
  500: "The server met an error of its own",
  503: "The server is busy or not ready",
  504: "The answer took longer than the server allows",
};

export const UNREACHABLE = "The server cannot be reached. Is it still running?";
export const STRANGE_KEY = "The API key has a character that no key can have: a key is ASCII.";
export const BROKE_OFF = "The connection was lost before the answer was complete.";

/** An error with a message for the reader, and what the page can offer. */
export class Failure extends Error {
  /**
   * @param {string} words a sentence for the reader
   * @param {number} wait seconds the server asks to wait before another try; 0 when it does not say
   * @param {boolean} needsKey an API key would help
   * @param {number} status of the response; 0 without one
   */
  constructor(words, { wait = 0, needsKey = false, status = 0 } = {}) {
    super(words);
    this.wait = wait;
    this.needsKey = needsKey;
    this.status = status;
  }

  /** The same request would fail again. */
  get lasts() {
    return this.status === 400 || this.status === 413;
  }
}

/** The failure that a response with an error status stands for. */
export async function failureOf(response) {
  const words = WORDS[response.status] ?? `The server answered with status ${response.status}`;
  return new Failure(withReason(words, await reasonIn(response)), {
    wait: secondsOf(response.headers.get("Retry-After")),
    needsKey: response.status === 401,
    status: response.status,
  });
}

/** The failure that an error event in mid-stream stands for. */
export function brokenBy(error) {
  return new Failure(withReason("The server broke the answer off", error?.message));
}

function withReason(words, reason) {
  return reason ? `${words}: ${reason}` : `${words}.`;
}

async function reasonIn(response) {
  try {
    return (await response.json()).error.message;
  } catch {
    return ""; // not the shape of this API, perhaps from a proxy: the status has to do
  }
}

// Retry-After is a number of seconds or a date.
function secondsOf(header) {
  if (!header) return 0;
  const seconds = /^\d+$/.test(header) ? Number(header) : (Date.parse(header) - Date.now()) / 1000;
  return Number.isFinite(seconds) ? Math.max(0, Math.ceil(seconds)) : 0;
}
