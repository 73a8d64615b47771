//! Who the made-up clients are and how they behave. Data, and a few numbers drawn from a seed, so that every
//! demo looks the same.

use std::time::Duration;

/// How often somebody asks, and how much at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Habit {
    pub(super) every: Duration,
    pub(super) at_once: u32,
    pub(super) ask: fn(&mut Draw) -> Ask,
}

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ask {
    pub(super) door: Door,
    pub(super) method: &'static str,
    pub(super) path: String,
    pub(super) api_key: Option<String>,
    pub(super) ip: String,
}

/// Where it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Door {
    Gateway,
    Http,
}

/// Numbers that look random (splitmix64).
#[derive(Clone, Debug)]
pub(super) struct Draw(pub(super) u64);

impl Draw {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % end.max(1)
    }
}

/// About 230 requests a second, in all.
pub(super) const HABITS: [Habit; 9] = [
    // Steady readers, each well within the limit.
    habit(25, 1, |draw| {
        let (client, item) = (draw.below(8), draw.below(900));
        keyed(Door::Gateway, "GET", format!("/api/items/{item}"), format!("free-{client}"), client)
    }),
    // Somebody who sends an hour's orders in one go, again and again.
    habit(4_000, 45, |draw| {
        let order = draw.below(10_000);
        let path = format!("/api/orders/{order}");
        keyed(Door::Gateway, "POST", path, "free-batch-job".to_owned(), 40)
    }),
    // Writers at the edge of what they may.
    habit(45, 1, |draw| {
        let client = draw.below(3);
        keyed(Door::Http, "POST", "/api/orders".to_owned(), format!("free-{client}"), client)
    }),
    // One hot key: three times what it may.
    habit(22, 1, |_| {
        let path = "/api/search".to_owned();
        keyed(Door::Http, "GET", path, "free-scraper".to_owned(), 77)
    }),
    // Others who search now and then.
    habit(110, 1, |draw| {
        let client = draw.below(20);
        let path = "/api/search".to_owned();
        keyed(Door::Gateway, "GET", path, format!("free-{client}"), client)
    }),
    // Who pays.
    habit(20, 1, |draw| {
        let client = draw.below(3);
        let name = ["harbour", "lighthouse", "breakwater"][usize::try_from(client).unwrap_or(0)];
        let path = format!("/api/items/{}", draw.below(900));
        keyed(Door::Gateway, "GET", path, format!("paid-{name}"), 60 + client)
    }),
    // Somebody who exports everything at the start of each minute.
    habit(900, 1, |_| {
        let path = "/api/export".to_owned();
        keyed(Door::Http, "GET", path, "paid-harbour".to_owned(), 60)
    }),
    // Somebody who guesses passwords.
    habit(400, 1, |_| Ask {
        door: Door::Gateway,
        method: "POST",
        path: "/login".to_owned(),
        api_key: None,
        ip: "198.51.100.23".to_owned(),
    }),
    // Crawlers, of whom one does not slow down, and passers-by from everywhere.
    habit(35, 1, |draw| {
        let host = match draw.below(3) {
            0 => draw.below(240) + 10,
            _ => 7,
        };
        let path = format!("/pages/{}", draw.below(5_000));
        Ask { door: Door::Http, method: "GET", path, api_key: None, ip: format!("192.0.2.{host}") }
    }),
];

const fn habit(every_ms: u64, at_once: u32, ask: fn(&mut Draw) -> Ask) -> Habit {
    Habit { every: Duration::from_millis(every_ms), at_once, ask }
}

fn keyed(door: Door, method: &'static str, path: String, api_key: String, host: u64) -> Ask {
    Ask { door, method, path, api_key: Some(api_key), ip: format!("203.0.113.{host}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_ask_a_few_hundred_times_a_second_and_each_in_many_ways() {
        let rate: f64 =
            HABITS.iter().map(|habit| f64::from(habit.at_once) / habit.every.as_secs_f64()).sum();
        assert!((150.0..400.0).contains(&rate), "{rate}");
        let mut draw = Draw(1);
        let asked: Vec<Ask> = (0..30).map(|_| (HABITS[0].ask)(&mut draw)).collect();
        assert!(asked.iter().any(|ask| *ask != asked[0]));
    }
}
