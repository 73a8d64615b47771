// Help for choosing an algorithm: when to use each one, its bound, and what it stores.

export const ALGORITHMS = {
  token_bucket: { title: "Token bucket", choose: "The usual choice: allows short bursts and enforces the average rate.", bound: "burst + rate × time", keeps: "two numbers per key" },
  leaky_bucket: { title: "Leaky bucket", choose: "Decides like a token bucket, but counts a level that drains instead of tokens.", bound: "burst + rate × time", keeps: "two numbers per key" },
  leaky_queue: { title: "Leaky bucket, queue: true", choose: "For an upstream that needs an even flow: requests wait in a queue.", bound: "one request at a time, at the rate", keeps: "two numbers per key" },
  fixed_window: { title: "Fixed window", choose: "For hourly or daily quotas that reset for all clients at once.", bound: "twice the limit in any window", keeps: "two numbers per key" },
  sliding_window_log: { title: "Sliding window log", choose: "For small limits that must hold exactly in every window.", bound: "the limit in any window, exactly", keeps: "every request in the window" },
  sliding_window_counter: { title: "Sliding window counter", choose: "Nearly exact, for large limits and many keys.", bound: "less than twice the limit in any window", keeps: "three numbers per key" },
};

/** The texts for a lane. */
export const about = (lane) => ALGORITHMS[lane.queue ? "leaky_queue" : lane.algorithm];
