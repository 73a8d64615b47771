// Traffic patterns for comparing algorithms, as arrival times in milliseconds. Each pattern shows a
// different property.

/** Patterns by name: a description, and the arrivals for a limit of `requests` in a window of `w`
 * milliseconds. */
export const PATTERNS = {
  "Around a boundary": {
    about: "As many requests as the limit just before a window ends, and again just after.",
    arrivals: (requests, w) => [...spread(requests, w * 0.85, w * 0.99), ...spread(requests, w * 1.01, w * 1.15), ...spread(requests, w * 2.2, w * 2.9)],
  },
  "Bursts": {
    about: "One and a half times the limit at once, then nothing for a while.",
    arrivals: (requests, w) => [0.3, 1.5, 3].flatMap((at) => spread(Math.ceil(requests * 1.5), w * at, w * (at + 0.08))),
  },
  "Steady, a little too fast": {
    about: "20 % above the limit, evenly spaced.",
    arrivals: (requests, w) => spread(Math.ceil(requests * 1.2 * 4), 0, w * 4),
  },
  "Accelerating": {
    about: "From half the limit to three times the limit.",
    arrivals: (requests, w) => {
      const list = [];
      for (let at = 0; at < w * 4; at += w / (requests * (0.5 + (2.5 * at) / (w * 4)))) list.push(at);
      return list;
    },
  },
  "A client that never stops": {
    about: "Four times the limit, all the time.",
    arrivals: (requests, w) => spread(requests * 4 * 4, 0, w * 4),
  },
};

function spread(number, from, to) {
  return Array.from({ length: number }, (_, at) => from + ((to - from) * at) / number);
}

/** A pattern's arrivals within the server's constraints: whole numbers, at most `most` of them. */
export function arrivals(name, requests, windowMs, most = 500) {
  const list = PATTERNS[name].arrivals(requests, windowMs).map(Math.round);
  const every = Math.ceil(list.length / most);
  return list.filter((_, at) => at % every === 0);
}
