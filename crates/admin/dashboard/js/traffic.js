// Arrivals to compare algorithms by, in milliseconds: each pattern shows something that others do not.

/** Patterns by name: what it is, and arrivals for a limit of `requests` in a window of `w` milliseconds. */
export const PATTERNS = {
  "Around a boundary": {
    about: "As many as the limit just before a window ends, and again just after.",
    arrivals: (requests, w) => [...spread(requests, w * 0.85, w * 0.99), ...spread(requests, w * 1.01, w * 1.15), ...spread(requests, w * 2.2, w * 2.9)],
  },
  "Bursts": {
    about: "One and a half times the limit at once, then nothing for a while.",
    arrivals: (requests, w) => [0.3, 1.5, 3].flatMap((at) => spread(Math.ceil(requests * 1.5), w * at, w * (at + 0.08))),
  },
  "Steady, a little too fast": {
    about: "A fifth more than the limit, evenly.",
    arrivals: (requests, w) => spread(Math.ceil(requests * 1.2 * 4), 0, w * 4),
  },
  "Ever faster": {
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

/** Arrivals of a pattern that the server takes: whole, and not too many. */
export function arrivals(name, requests, windowMs, most = 500) {
  const list = PATTERNS[name].arrivals(requests, windowMs).map(Math.round);
  const every = Math.ceil(list.length / most);
  return list.filter((_, at) => at % every === 0);
}
