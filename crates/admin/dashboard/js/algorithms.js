// What to know of each algorithm when choosing: its bound, what it keeps, and when it is right.

export const ALGORITHMS = {
  token_bucket: { title: "Token bucket", choose: "The usual choice: short bursts pass, the rate holds.", bound: "burst + rate × time", keeps: "two numbers a key" },
  leaky_bucket: { title: "Leaky bucket", choose: "Polices as a token bucket does; the same numbers, seen as a level that leaks.", bound: "burst + rate × time", keeps: "two numbers a key" },
  leaky_queue: { title: "Leaky bucket, queue: true", choose: "The upstream must see an even flow: requests wait their turn.", bound: "leaves at the rate, one by one", keeps: "two numbers a key" },
  fixed_window: { title: "Fixed window", choose: "Quotas by the hour or the day that start again for everyone at once.", bound: "twice the limit in any window", keeps: "two numbers a key" },
  sliding_window_log: { title: "Sliding window log", choose: "The limit must hold exactly in every window, and is small.", bound: "the limit in any window, exactly", keeps: "every request of a window" },
  sliding_window_counter: { title: "Sliding window counter", choose: "Nearly exact, for large limits and many keys.", bound: "less than twice the limit in any window", keeps: "three numbers a key" },
};

/** What to say of a lane. */
export const about = (lane) => ALGORITHMS[lane.queue ? "leaky_queue" : lane.algorithm];
