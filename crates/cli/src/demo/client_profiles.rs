//! The simulated clients and their behaviour. All random numbers come from fixed seeds, so every
//! demo looks the same.

use std::time::Duration;

/// The behaviour of a group of clients: how often they send requests, and how many at once.
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

/// The API that a request is sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DemoApi {
    Gateway,
    Http,
}

/// Pseudo-random number generator (splitmix64).
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

/// The client profiles; together they send about 230 requests per second.
pub(super) const PROFILES: [ClientProfile; 9] = [
    // Steady readers, each well within the limit.
    profile(25, 1, |rng| {
        let (client, item) = (rng.next_below(8), rng.next_below(900));
        keyed_request(
            DemoApi::Gateway,
            "GET",
            format!("/api/items/{item}"),
            format!("free-{client}"),
            client,
        )
    }),
    // A batch job that sends 45 orders at once, every four seconds.
    profile(4_000, 45, |rng| {
        let order = rng.next_below(10_000);
        let path = format!("/api/orders/{order}");
        keyed_request(DemoApi::Gateway, "POST", path, "free-batch-job".to_owned(), 40)
    }),
    // Writers close to their limit.
    profile(45, 1, |rng| {
        let client = rng.next_below(3);
        keyed_request(
            DemoApi::Http,
            "POST",
            "/api/orders".to_owned(),
            format!("free-{client}"),
            client,
        )
    }),
    // One hot key: a scraper at three times its limit.
    profile(22, 1, |_| {
        let path = "/api/search".to_owned();
        keyed_request(DemoApi::Http, "GET", path, "free-scraper".to_owned(), 77)
    }),
    // Clients that search occasionally.
    profile(110, 1, |rng| {
        let client = rng.next_below(20);
        let path = "/api/search".to_owned();
        keyed_request(DemoApi::Gateway, "GET", path, format!("free-{client}"), client)
    }),
    // Paying customers.
    profile(20, 1, |rng| {
        let client = rng.next_below(3);
        let name = ["harbour", "lighthouse", "breakwater"][usize::try_from(client).unwrap_or(0)];
        let path = format!("/api/items/{}", rng.next_below(900));
        keyed_request(DemoApi::Gateway, "GET", path, format!("paid-{name}"), 60 + client)
    }),
    // A client that uses up its export quota at the start of each minute.
    profile(900, 1, |_| {
        let path = "/api/export".to_owned();
        keyed_request(DemoApi::Http, "GET", path, "paid-harbour".to_owned(), 60)
    }),
    // A client that guesses passwords.
    profile(400, 1, |_| DemoRequest {
        api: DemoApi::Gateway,
        method: "POST",
        path: "/login".to_owned(),
        api_key: None,
        ip: "198.51.100.23".to_owned(),
    }),
    // Page views from many addresses, two thirds of them from a crawler that does not slow down.
    profile(35, 1, |rng| {
        let host = match rng.next_below(3) {
            0 => rng.next_below(240) + 10,
            _ => 7,
        };
        let path = format!("/pages/{}", rng.next_below(5_000));
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
    interval_ms: u64,
    burst: u32,
    make_request: fn(&mut DemoRng) -> DemoRequest,
) -> ClientProfile {
    ClientProfile { interval: Duration::from_millis(interval_ms), burst, make_request }
}

fn keyed_request(
    api: DemoApi,
    method: &'static str,
    path: String,
    api_key: String,
    host: u64,
) -> DemoRequest {
    DemoRequest { api, method, path, api_key: Some(api_key), ip: format!("203.0.113.{host}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_send_few_hundred_requests_per_second() {
        let rate: f64 = PROFILES
            .iter()
            .map(|profile| f64::from(profile.burst) / profile.interval.as_secs_f64())
            .sum();
        assert!((150.0..400.0).contains(&rate), "{rate}");
        let mut rng = DemoRng(1);
        let requests: Vec<DemoRequest> =
            (0..30).map(|_| (PROFILES[0].make_request)(&mut rng)).collect();
        assert!(requests.iter().any(|request| *request != requests[0]));
    }
}
