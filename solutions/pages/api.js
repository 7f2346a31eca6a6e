// The two calls that the chat page makes.

import { BROKE_OFF, Failure, STRANGE_KEY, UNREACHABLE, brokenBy, failureOf } from "./failures.js";
import { eventData } from "./sse.js";

/** The names of the models that the server has. Throws a Failure. */
export async function listModels(key) {
  const response = await call("v1/models", { headers: headers(key) });
  return (await response.json()).data.map((model) => model.id);
}

/**
 * Yields the chunks of a streamed chat completion, as objects.
 * Throws a Failure, or an AbortError once the signal is given.
 */
export async function* streamChat(body, key, signal) {
  const response = await call("v1/chat/completions", {
    method: "POST",
    headers: { ...headers(key), "Content-Type": "application/json" },
    body: JSON.stringify({ ...body, stream: true, stream_options: { include_usage: true } }),
    signal,
  });
  try {
    for await (const data of eventData(response.body)) {
      if (data === "[DONE]") return;
      const chunk = JSON.parse(data);
      if (chunk.error) throw brokenBy(chunk.error);
      yield chunk;
    }
  } catch (error) {
    throw error instanceof TypeError ? new Failure(BROKE_OFF) : error;
  }
  throw new Failure(BROKE_OFF); // it ended, and nobody said so
}

async function call(path, options) {
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    throw error instanceof TypeError ? new Failure(UNREACHABLE) : error;
  }
  if (!response.ok) throw await failureOf(response);
  return response;
}

function headers(key) {
  if (/[^ -~]/.test(key)) throw new Failure(STRANGE_KEY, { needsKey: true }); // fetch would throw
  return key ? { Authorization: `Bearer ${key}` } : {};
}
