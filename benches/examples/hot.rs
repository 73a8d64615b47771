use std::time::Duration;
use tidegate_bench::contender::*;
use tidegate_bench::load::*;
fn main() {
    let n: usize = std::env::args().nth(1).unwrap().parse().unwrap();
    let which = std::env::args().nth(2).unwrap();
    let ks = keys(n);
    let c: Box<dyn Contender> = match which.as_str() {
        "tide" => Box::new(Tidegate::new(1 << 30)),
        "three" => Box::new(ThreeRules(Tidegate::new(1 << 30))),
        "gov" => Box::new(Governor::new()),
        _ => Box::new(Bare::new()),
    };
    for k in &ks {
        c.decide(k)
    }
    let s = vec![stream(Spread::Uniform, n, 7)];
    println!("{:.2}M", run(&s, Duration::from_millis(2000), &|k| c.decide(&ks[k as usize])) / 1e6);
}
