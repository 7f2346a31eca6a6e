// How long the first token of an answer took, how fast the others came, and why it ended.

const REASONS = {
  stop: "stop (the model was done)",
  length: "length (no more tokens allowed)",
};

/** Counts from now on. `clock` gives milliseconds. */
export function createMeter(clock = () => performance.now()) {
  const sent = clock();
  let first = null;
  let last = null;
  let pieces = 0;
  let tokens = null; // the server's own count, at the end

  return {
    /** A piece of text came. It is one token, or a few that had to wait for each other. */
    piece() {
      last = clock();
      first ??= last;
      pieces += 1;
    },

    usage(usage) {
      tokens = usage.completion_tokens;
    },

    /** What is known so far, as [name, value] pairs of strings. */
    read(ended = "") {
      const rows = [];
      if (first !== null) rows.push(["First token", `${Math.round(first - sent)} ms`]);
      const count = tokens ?? pieces;
      if (count > 1 && last > first) {
        rows.push(["Speed", `${(((count - 1) * 1000) / (last - first)).toFixed(1)} tokens/s`]);
      }
      if (count > 0) rows.push(["Tokens", tokens === null ? `about ${count}` : `${count}`]);
      if (ended) rows.push(["Ended", REASONS[ended] ?? ended]);
      return rows;
    },
  };
}
