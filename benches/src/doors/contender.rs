//! Who is compared, and a turn of theirs at a door.

#![expect(clippy::expect_used, reason = "a benchmark that cannot run should say why and stop")]

use std::path::PathBuf;

use super::setup::{self, Running};
use super::{CONNECTIONS, Door, KEYS, QUOTA, SECONDS, Turn, call, h2load, redis_benchmark};
use crate::gateway::{cpu, wrk};

/// Who is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// Us.
    Tidegate,
    /// The other limiter that speaks all three.
    Throttlecrab,
    /// PING on a Redis server, `return 200` on nginx.
    Ceiling,
}

impl Who {
    /// Everybody.
    pub const ALL: [Self; 3] = [Self::Tidegate, Self::Throttlecrab, Self::Ceiling];

    /// As the table calls them at a door.
    #[must_use]
    pub const fn name(self, door: Door) -> &'static str {
        match (self, door) {
            (Self::Tidegate, _) => "**tidegate**",
            (Self::Throttlecrab, _) => "throttlecrab",
            (Self::Ceiling, Door::Resp | Door::Pipeline) => "Redis, PING",
            (Self::Ceiling, Door::Http) => "nginx, `return 200`",
            (Self::Ceiling, Door::Grpc) => "nginx, `return 200` over h2c",
        }
    }
}

/// Everybody, running.
#[derive(Debug)]
pub struct Contenders {
    tidegate: Running,
    throttlecrab: Running,
    nginx: Running,
    redis: Running,
}

impl Contenders {
    /// Starts them.
    #[must_use]
    pub fn start() -> Self {
        Self {
            tidegate: setup::tidegate(),
            throttlecrab: setup::throttlecrab(),
            nginx: setup::nginx(),
            redis: setup::redis(),
        }
    }

    /// The program that is asked.
    #[must_use]
    pub const fn running(&self, who: Who, door: Door) -> &Running {
        match (who, door) {
            (Who::Tidegate, _) => &self.tidegate,
            (Who::Throttlecrab, _) => &self.throttlecrab,
            (Who::Ceiling, Door::Resp | Door::Pipeline) => &self.redis,
            (Who::Ceiling, Door::Http | Door::Grpc) => &self.nginx,
        }
    }

    /// One turn. `rate` is how many answers a second are expected, for programs that count.
    ///
    /// # Panics
    /// When anything is answered with an error.
    #[must_use]
    pub fn turn(&self, who: Who, door: Door, rate: f64) -> Turn {
        let running = self.running(who, door);
        let before = cpu::taken_us(running.pid());
        let (answers, mut turn) = match door {
            Door::Resp => resp(running, who, 1, rate),
            Door::Pipeline => resp(running, who, 16, rate),
            Door::Http => http(running, who),
            Door::Grpc => grpc(running, who),
        };
        turn.cpu_us = (cpu::taken_us(running.pid()) - before) / answers as f64;
        turn
    }
}

fn resp(running: &Running, who: Who, pipeline: usize, rate: f64) -> (usize, Turn) {
    let throttle = ["THROTTLE", "key:__rand_int__", QUOTA, QUOTA, "60"];
    let command = if who == Who::Ceiling { &["PING"][..] } else { &throttle[..] };
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few millions")]
    let count = (rate * SECONDS as f64) as usize;
    let told = redis_benchmark::run(running.address(Door::Resp), pipeline, count, command);
    (count, Turn { per_second: told.per_second, cpu_us: 0.0, latencies: told.latencies })
}

fn http(running: &Running, who: Who) -> (usize, Turn) {
    let numbers = format!(r#""max_burst":{QUOTA},"count_per_period":{QUOTA},"period":60"#);
    let (target, body) = match who {
        Who::Throttlecrab => ("/throttle", format!(r#"{{"key":"NAME",{numbers}}}"#)),
        Who::Tidegate | Who::Ceiling => ("/v1/check", r#"{"facts":{"key":"NAME"}}"#.to_owned()),
    };
    let script = include_str!("setups/keys.lua")
        .replace("KEYS", &KEYS.to_string())
        .replace("TARGET", target)
        .replace("BODY", &body);
    let file = running.folder().join("keys.lua");
    std::fs::write(&file, script).expect("a file");
    let url = format!("http://{}", running.address(Door::Http));
    let told = wrk::run_with(&url, CONNECTIONS, SECONDS, Some(&file));
    assert_eq!(told.refused, 0, "{who:?} answered with errors: {told:?}");
    let answers = usize::try_from(told.requests).expect("a few millions");
    (answers, Turn { per_second: told.per_second, cpu_us: 0.0, latencies: told.latencies() })
}

fn grpc(running: &Running, who: Who) -> (usize, Turn) {
    let (path, message) = message(who);
    let url = format!("http://{}/{path}", running.address(Door::Grpc));
    let body = call::framed(&message);
    let file: PathBuf = running.folder().join("message");
    std::fs::write(&file, &body).expect("a file");
    // Of its own, because a program may watch its folder.
    let log = tempfile::tempdir().expect("a folder");
    let told = h2load::run(&url, &file, &log.path().join("calls"));
    if who != Who::Ceiling {
        // One that failed has no message. Of those that are well the longest and the shortest differ by
        // less than three bytes: a time that is 0 is left out.
        let well = call::once(&url, &body) - 3;
        let least = told.calls * well;
        assert!(told.message_bytes >= least, "{who:?} answered with errors: {told:?}");
    }
    (told.calls, Turn { per_second: told.per_second, cpu_us: 0.0, latencies: told.latencies })
}

/// The method, and a call about one key: a program that sends one body cannot draw another each time.
fn message(who: Who) -> (&'static str, Vec<u8>) {
    let key = b"key:000000000001";
    match who {
        Who::Tidegate | Who::Ceiling => {
            let entry = [call::field(1, b"key"), call::field(2, key)].concat();
            let descriptor = call::field(1, &entry);
            let call = [call::field(1, b"bench"), call::field(2, &descriptor)].concat();
            ("envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit", call)
        }
        Who::Throttlecrab => {
            // max_burst 2 and count_per_period 3 are a million (0xC0 0x84 0x3D), period 4 is 60, quantity 5
            // is 1.
            let numbers =
                [&[0x10, 0xC0, 0x84, 0x3D, 0x18, 0xC0, 0x84, 0x3D][..], &[0x20, 60, 0x28, 1]];
            ("throttlecrab.RateLimiter/Throttle", [call::field(1, key), numbers.concat()].concat())
        }
    }
}
