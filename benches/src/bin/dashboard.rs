//! What it costs decisions that somebody watches: the same refusals at a steady rate, with nobody listening to what
//! goes on and with as many as may. Contenders take turns in rounds.

#![expect(clippy::expect_used, reason = "a benchmark that cannot run should say why and stop")]

use std::sync::Arc;

use http_body_util::BodyExt as _;
use tidegate_bench::paced::{clock, paced};
use tidegate_bench::report::{Table, machine, median};
use tidegate_bench::rules::compile;
use tidegate_control::live::{Live, MOST_LISTENERS, Tells};
use tidegate_control::{Identities, Metrics, Top, ViolationLog};
use tidegate_core::key::Secret;
use tidegate_edge::Status;
use tidegate_engine::{Limiter, Observer};
use tidegate_memory::MemoryStore;

const TURNS: usize = 36;

/// One decision in so many is timed, as the server does.
const TIMED: u32 = 16;

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    let identities = Identities { secret: Secret::UNSET, plain: false };
    let log = Arc::new(ViolationLog::new(identities, clock()));
    let metrics = Arc::new(Metrics::new(TIMED, clock()));
    // Half of the rules refuse everything, and each is told of with each tick.
    let rules = (0..20).map(|at| {
        let mode = if at % 2 == 0 { "enforce" } else { "shadow" };
        format!("{{ id: r{at}, key_by: api_key, limit: 1/h, mode: {mode} }}")
    });
    let source = format!("rules: [{}]", rules.collect::<Vec<_>>().join(", "));
    let limiter = Limiter::new(MemoryStore::new(), compile(&source))
        .observed_by(Arc::clone(&log) as Arc<dyn Observer>)
        .observed_by(Arc::clone(&metrics) as Arc<dyn Observer>)
        .observed_by(Arc::new(Top::new(identities, clock())) as Arc<dyn Observer>);
    let tellers = vec![metrics as Arc<dyn Tells>, Arc::clone(&log) as Arc<dyn Tells>];
    let live = Arc::new(log.live(tellers, Arc::new(Status::new())));
    let mut shares = [const { Vec::<[f64; 3]>::new() }; 3];
    for _ in 0..TURNS {
        for (shares, listeners) in shares.iter_mut().zip([0, 1, MOST_LISTENERS]) {
            let listening = runtime.block_on(async { listen(&live, listeners) });
            shares.push(paced(&limiter, None));
            // Their places are free when they have ended.
            for listener in listening {
                listener.abort();
                let _ = runtime.block_on(listener);
            }
        }
    }
    println!("{}\n\n{}", machine(), told(&shares));
}

/// So many who read all that they are told.
fn listen(live: &Arc<Live>, listeners: usize) -> Vec<tokio::task::JoinHandle<()>> {
    let listen = |_| {
        let mut feed = live.listen().expect("there is room");
        tokio::spawn(async move { while feed.frame().await.is_some() {} })
    };
    (0..listeners).map(listen).collect()
}

fn told(shares: &[Vec<[f64; 3]>; 3]) -> String {
    let mut table = Table::new(&[
        "30 000 refusals/s by 20 rules, microseconds",
        "p50",
        "p99",
        "p99.9",
        "p99, of the first's",
    ]);
    let names = ["nobody watches", "one dashboard", "as many as may be"];
    for (name, own) in names.into_iter().zip(shares) {
        let column = |at: usize| median(&own.iter().map(|share| share[at]).collect::<Vec<_>>());
        let ratios: Vec<f64> =
            own.iter().zip(&shares[0]).map(|(own, none)| own[1] / none[1]).collect();
        let cells = (0..3).map(|at| format!("{:.2}", column(at)));
        let row = [name.to_owned()].into_iter().chain(cells);
        table.row(&row.chain([format!("{:.2}", median(&ratios))]).collect::<Vec<_>>());
    }
    format!("### Decisions while somebody watches\n\n{table}")
}
