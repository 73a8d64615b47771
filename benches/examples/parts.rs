use std::hint::black_box;
use std::time::Instant;
use tidegate_core::key::*;
use tidegate_core::policy::*;
use tidegate_core::quota::*;
use tidegate_core::time::*;
fn t(name: &str, mut f: impl FnMut()) {
    let n = 5_000_000;
    let s = Instant::now();
    for _ in 0..n {
        f()
    }
    println!("{name}: {:.1} ns", s.elapsed().as_nanos() as f64 / n as f64);
}
fn main() {
    let k = "api-key-000000001234".to_string();
    let h = KeyHasher::new(Secret::UNSET);
    t("sip128", || {
        let mut x = h;
        x.part(black_box(&k).as_bytes());
        black_box(x.finish());
    });
    let rs = std::hash::RandomState::new();
    t("std sip", || {
        use std::hash::BuildHasher;
        black_box(rs.hash_one(black_box(&k)));
    });
    let c = SystemClock::new();
    t("clock", || {
        black_box(c.now());
    });
    t("Instant", || {
        black_box(Instant::now());
    });
    let m = parking_lot::Mutex::new(1u64);
    t("pl mutex", || {
        *m.lock() += 1;
    });
    let m = std::sync::Mutex::new(1u64);
    t("std mutex", || {
        *m.lock().unwrap() += 1;
    });
    let p = Policy::new(Algorithm::TokenBucket, Quota::new(100, Micros::from_secs(1))).unwrap();
    let mut st = None;
    let mut now = Timestamp::from_micros(1 << 50);
    t("policy fit+charge+gauge", || {
        now = now.plus(Micros::new(7));
        let f = p.fit(st.as_ref(), 1, now);
        if f.is_now() {
            p.charge(&mut st, 1, now)
        };
        black_box(p.gauge(st.as_ref(), now));
    });
    let mut a = black_box(1u64 << 51);
    t("div", || {
        a = (a / black_box(10001u64)) | 1 << 51;
    });
    let q = quanta();
    t("quanta", || {
        black_box(q.now());
    });
}
fn quanta() -> governor::clock::QuantaClock {
    governor::clock::QuantaClock::default()
}
trait N {
    fn now(&self) -> u64;
}
impl N for governor::clock::QuantaClock {
    fn now(&self) -> u64 {
        use governor::clock::Clock;
        let n = Clock::now(self);
        black_box(n);
        0
    }
}
