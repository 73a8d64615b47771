//! quick
use std::time::Duration;
use tidegate_bench::contender::*;
use tidegate_bench::load::*;
fn main() {
    for n in [1usize, 1000, 1_000_000] {
        let ks = keys(n);
        for spread in [Spread::Uniform, Spread::Zipf] {
            if n == 1 && spread == Spread::Zipf {
                continue;
            }
            let cs: Vec<(&str, Box<dyn Contender>)> = vec![
                ("tide", Box::new(Tidegate::new(1 << 30))),
                ("three", Box::new(ThreeRules(Tidegate::new(1 << 30)))),
                ("gov", Box::new(Governor::new())),
                ("bare", Box::new(Bare::new())),
            ];
            for (_, c) in &cs {
                for k in &ks {
                    c.decide(k)
                }
            }
            for t in [1usize, 2] {
                let streams: Vec<_> = (0..t).map(|i| stream(spread, n, 77 + i as u64)).collect();
                let mut best = vec![0f64; cs.len()];
                for _ in 0..3 {
                    for (i, (_, c)) in cs.iter().enumerate() {
                        let r = run(&streams, Duration::from_millis(300), &|k| {
                            c.decide(&ks[k as usize])
                        });
                        best[i] = best[i].max(r);
                    }
                }
                println!(
                    "{n} {} {t}t: {}",
                    spread.name(),
                    cs.iter()
                        .zip(&best)
                        .map(|((n, _), b)| format!("{n} {:.2}M", b / 1e6))
                        .collect::<Vec<_>>()
                        .join("  ")
                );
            }
        }
    }
}
