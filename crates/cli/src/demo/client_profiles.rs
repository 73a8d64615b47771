//! Who the made-up clients are and how they behave. Data, and a few numbers drawn from a seed, so that every
//! demo looks the same.

use std::time::Duration;

/// How often somebody asks, and how much at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClientProfile {
    pub(super) interval: Duration,
    pub(super) burst: u32,
    pub(super) make_request: fn(&mut DemoRng) -> DemoRequest,
}

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DemoRequest {
    pub(super) api: DemoApi,
    pub(super) method: &'static str,
    pub(super) path: String,
    pub(super) api_key: Option<String>,
    pub(super) ip: String,
}

/// Where it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DemoApi {
    Gateway,
    Http,
}

/// Numbers that look random (splitmix64).
#[derive(Clone, Debug)]
pub(super) struct DemoRng(pub(super) u64);

impl DemoRng {
    fn next_below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % end.max(1)
    }
}

/// About 230 requests a second, in all.
pub(super) const PROFILES: [ClientProfile; 9] = [
    // Steady readers, each well within the limit.
    profile(25, 1, |draw| {
        let (client, item) = (draw.next_below(8), draw.next_below(900));
        keyed_request(
            DemoApi::Gateway,
            "GET",
            format!("/api/items/{item}"),
            format!("free-{client}"),
            client,
        )
    }),
    // Somebody who sends an hour's orders in one go, again and again.
    profile(4_000, 45, |draw| {
        let order = draw.next_below(10_000);
        let path = format!("/api/orders/{order}");
        keyed_request(DemoApi::Gateway, "POST", path, "free-batch-job".to_owned(), 40)
    }),
    // Writers at the edge of what they may.
    profile(45, 1, |draw| {
        let client = draw.next_below(3);
        keyed_request(
            DemoApi::Http,
            "POST",
            "/api/orders".to_owned(),
            format!("free-{client}"),
            client,
        )
    }),
    // One hot key: three times what it may.
    profile(22, 1, |_| {
        let path = "/api/search".to_owned();
        keyed_request(DemoApi::Http, "GET", path, "free-scraper".to_owned(), 77)
    }),
    // Others who search now and then.
    profile(110, 1, |draw| {
        let client = draw.next_below(20);
        let path = "/api/search".to_owned();
        keyed_request(DemoApi::Gateway, "GET", path, format!("free-{client}"), client)
    }),
    // Who pays.
    profile(20, 1, |draw| {
        let client = draw.next_below(3);
        let name = ["harbour", "lighthouse", "breakwater"][usize::try_from(client).unwrap_or(0)];
        let path = format!("/api/items/{}", draw.next_below(900));
        keyed_request(DemoApi::Gateway, "GET", path, format!("paid-{name}"), 60 + client)
    }),
    // Somebody who exports everything at the start of each minute.
    profile(900, 1, |_| {
        let path = "/api/export".to_owned();
        keyed_request(DemoApi::Http, "GET", path, "paid-harbour".to_owned(), 60)
    }),
    // Somebody who guesses passwords.
    profile(400, 1, |_| DemoRequest {
        api: DemoApi::Gateway,
        method: "POST",
        path: "/login".to_owned(),
        api_key: None,
        ip: "198.51.100.23".to_owned(),
    }),
    // Crawlers, of whom one does not slow down, and passers-by from everywhere.
    profile(35, 1, |draw| {
        let host = match draw.next_below(3) {
            0 => draw.next_below(240) + 10,
            _ => 7,
        };
        let path = format!("/pages/{}", draw.next_below(5_000));
        DemoRequest {
            api: DemoApi::Http,
            method: "GET",
            path,
            api_key: None,
            ip: format!("192.0.2.{host}"),
        }
    }),
];

const fn profile(
    every_ms: u64,
    at_once: u32,
    ask: fn(&mut DemoRng) -> DemoRequest,
) -> ClientProfile {
    ClientProfile { interval: Duration::from_millis(every_ms), burst: at_once, make_request: ask }
}

fn keyed_request(
    door: DemoApi,
    method: &'static str,
    path: String,
    api_key: String,
    host: u64,
) -> DemoRequest {
    DemoRequest { api: door, method, path, api_key: Some(api_key), ip: format!("203.0.113.{host}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_send_few_hundred_requests_per_second() {
        let rate: f64 = PROFILES
            .iter()
            .map(|habit| f64::from(habit.burst) / habit.interval.as_secs_f64())
            .sum();
        assert!((150.0..400.0).contains(&rate), "{rate}");
        let mut draw = DemoRng(1);
        let asked: Vec<DemoRequest> =
            (0..30).map(|_| (PROFILES[0].make_request)(&mut draw)).collect();
        assert!(asked.iter().any(|ask| *ask != asked[0]));
    }
}
