//! A leaky bucket with a queue: the gateway forwards requests to the upstream at a constant rate.

use std::thread;
use std::time::Duration;

use crate::support::{RecordingUpstream, ServerProcess, TestFolder};

const RATE: f64 = 50.0;
const QUEUE_LENGTH: usize = 30;

#[test]
fn upstream_rate_never_exceeds_the_limit() {
    let upstream = RecordingUpstream::start();
    let folder = TestFolder::new();
    let rules = format!(
        "rules:\n  - id: a\n    key_by: ip\n    limit: {{ requests: {RATE}, window: 1s, \
         burst: {QUEUE_LENGTH}, algorithm: leaky_bucket, queue: true }}\n"
    );
    let rules = folder.write("rules.yaml", rules);
    let server = ServerProcess::start_gateway_with_config(&rules, &["--upstream", &upstream.url()]);
    let statuses: Vec<u16> = thread::scope(|scope| {
        let send = || server.gateway_client().get("/").status;
        let requests: Vec<_> = (0..2 * QUEUE_LENGTH).map(|_| scope.spawn(send)).collect();
        requests.into_iter().map(|request| request.join().unwrap()).collect()
    });
    let passed = statuses.iter().filter(|status| **status == 200).count();
    assert!(statuses.iter().all(|status| [200, 429].contains(status)), "{statuses:?}");
    assert!((QUEUE_LENGTH..=QUEUE_LENGTH + 10).contains(&passed), "{passed} passed");
    let mut arrivals: Vec<_> =
        upstream.received_requests().iter().map(|request| request.received_at).collect();
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
