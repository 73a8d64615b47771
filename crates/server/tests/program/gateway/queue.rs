//! A leaky bucket that queues: requests leave for the upstream at a constant rate.

use std::thread;
use std::time::Duration;

use crate::support::{Folder, Server, Upstream};

const RATE: f64 = 50.0;
const PLACES: usize = 30;

#[test]
fn the_upstream_never_sees_more_than_the_rate() {
    let upstream = Upstream::start();
    let folder = Folder::new();
    let rules = format!(
        "rules:\n  - id: a\n    key_by: ip\n    limit: {{ requests: {RATE}, window: 1s, \
         burst: {PLACES}, algorithm: leaky_bucket, queue: true }}\n"
    );
    let rules = folder.write("rules.yaml", rules);
    let server = Server::gateway_with(&rules, &["--upstream", &upstream.url()]);
    let statuses: Vec<u16> = thread::scope(|scope| {
        let ask = || server.visitor().get("/").status;
        let asking: Vec<_> = (0..2 * PLACES).map(|_| scope.spawn(ask)).collect();
        asking.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let passed = statuses.iter().filter(|status| **status == 200).count();
    assert!(statuses.iter().all(|status| [200, 429].contains(status)), "{statuses:?}");
    assert!((PLACES..=PLACES + 10).contains(&passed), "{passed} passed");
    let mut arrivals: Vec<_> = upstream.requests().iter().map(|request| request.at).collect();
    arrivals.sort();
    assert_eq!(arrivals.len(), passed);
    let slack = Duration::from_millis(50);
    for (first, from) in arrivals.iter().enumerate() {
        for (more, to) in arrivals[first..].iter().enumerate() {
            let most = 1.0 + RATE * (*to - *from + slack).as_secs_f64();
            assert!((more + 1) as f64 <= most, "{} within {:?}", more + 1, *to - *from);
        }
    }
}
