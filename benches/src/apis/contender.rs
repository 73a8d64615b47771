//! The contenders, and how one of them takes a turn at one API.

#![expect(clippy::expect_used, reason = "a benchmark that cannot run should say why and stop")]

use std::path::PathBuf;

use super::setup::{self, ApiProcess};
use super::{
    ApiTurn, BenchApi, CONNECTIONS, KEYS, QUOTA, SECONDS, grpc_call, h2load, redis_benchmark,
};
use crate::gateway::wrk;

/// A server that takes part in the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApiContender {
    /// Tidegate.
    Tidegate,
    /// throttlecrab, the other limiter that speaks all three protocols.
    Throttlecrab,
    /// No limiter: PING on a Redis server, `return 200` on nginx.
    Ceiling,
}

impl ApiContender {
    /// All contenders, in the order of the table.
    pub const ALL: [Self; 3] = [Self::Tidegate, Self::Throttlecrab, Self::Ceiling];

    /// Name in the results table of an API.
    #[must_use]
    pub const fn name(self, api: BenchApi) -> &'static str {
        match (self, api) {
            (Self::Tidegate, _) => "**tidegate**",
            (Self::Throttlecrab, _) => "throttlecrab",
            (Self::Ceiling, BenchApi::Resp | BenchApi::Pipeline) => "Redis, PING",
            (Self::Ceiling, BenchApi::Http) => "nginx, `return 200`",
            (Self::Ceiling, BenchApi::Grpc) => "nginx, `return 200` over h2c",
        }
    }
}

/// The running processes of all contenders.
#[derive(Debug)]
pub struct ApiContenders {
    tidegate: ApiProcess,
    throttlecrab: ApiProcess,
    nginx: ApiProcess,
    redis: ApiProcess,
}

impl ApiContenders {
    /// Starts every contender.
    #[must_use]
    pub fn start() -> Self {
        Self {
            tidegate: setup::tidegate(),
            throttlecrab: setup::throttlecrab(),
            nginx: setup::nginx(),
            redis: setup::redis(),
        }
    }

    /// The process that serves this API for a contender.
    #[must_use]
    pub const fn process(&self, contender: ApiContender, api: BenchApi) -> &ApiProcess {
        match (contender, api) {
            (ApiContender::Tidegate, _) => &self.tidegate,
            (ApiContender::Throttlecrab, _) => &self.throttlecrab,
            (ApiContender::Ceiling, BenchApi::Resp | BenchApi::Pipeline) => &self.redis,
            (ApiContender::Ceiling, BenchApi::Http | BenchApi::Grpc) => &self.nginx,
        }
    }

    /// Runs one turn. `rate` is the expected number of responses per second; `redis-benchmark`
    /// needs it, because it runs for a number of commands instead of a duration.
    ///
    /// # Panics
    /// When any response is an error.
    #[must_use]
    pub fn run_turn(&self, contender: ApiContender, api: BenchApi, rate: f64) -> ApiTurn {
        let running = self.process(contender, api);
        running.measure_cpu(|| match api {
            BenchApi::Resp => resp_turn(running, contender, 1, rate),
            BenchApi::Pipeline => resp_turn(running, contender, 16, rate),
            BenchApi::Http => http_turn(running, contender),
            BenchApi::Grpc => grpc_turn(running, contender),
        })
    }
}

fn resp_turn(
    running: &ApiProcess,
    contender: ApiContender,
    pipeline: usize,
    rate: f64,
) -> (usize, ApiTurn) {
    let throttle = ["THROTTLE", "key:__rand_int__", QUOTA, QUOTA, "60"];
    let command = if contender == ApiContender::Ceiling { &["PING"][..] } else { &throttle[..] };
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "at most a few million commands"
    )]
    let count = (rate * SECONDS as f64) as usize;
    let report = redis_benchmark::run(running.address(BenchApi::Resp), pipeline, count, command);
    (count, ApiTurn { per_second: report.per_second, cpu_us: 0.0, latencies: report.latencies })
}

fn http_turn(running: &ApiProcess, contender: ApiContender) -> (usize, ApiTurn) {
    let numbers = format!(r#""max_burst":{QUOTA},"count_per_period":{QUOTA},"period":60"#);
    let (target, body) = match contender {
        ApiContender::Throttlecrab => ("/throttle", format!(r#"{{"key":"NAME",{numbers}}}"#)),
        ApiContender::Tidegate | ApiContender::Ceiling => {
            ("/v1/check", r#"{"facts":{"key":"NAME"}}"#.to_owned())
        }
    };
    run_http_turn(running, target, &body, KEYS)
}

/// Sends requests with this many different keys for the length of a turn; `NAME` in `body` stands
/// for the key. Returns the number of responses, and the turn without CPU time.
///
/// # Panics
/// When any response is an error.
#[must_use]
pub fn run_http_turn(
    running: &ApiProcess,
    target: &str,
    body: &str,
    keys: usize,
) -> (usize, ApiTurn) {
    let script = include_str!("setups/keys.lua")
        .replace("KEYS", &keys.to_string())
        .replace("TARGET", target)
        .replace("BODY", body);
    let file = running.folder().join("keys.lua");
    std::fs::write(&file, script).expect("write the wrk script");
    let url = format!("http://{}", running.address(BenchApi::Http));
    let report = wrk::run_with(&url, CONNECTIONS, SECONDS, Some(&file));
    assert_eq!(report.refused, 0, "{url}{target} returned errors: {report:?}");
    let responses = usize::try_from(report.requests).expect("request count fits in usize");
    (
        responses,
        ApiTurn { per_second: report.per_second, cpu_us: 0.0, latencies: report.latencies() },
    )
}

fn grpc_turn(running: &ApiProcess, contender: ApiContender) -> (usize, ApiTurn) {
    let (path, message) = grpc_message(contender);
    let url = format!("http://{}/{path}", running.address(BenchApi::Grpc));
    let body = grpc_call::frame_message(&message);
    let file: PathBuf = running.folder().join("message");
    std::fs::write(&file, &body).expect("write the gRPC message");
    // The log is written to a separate folder, because Tidegate watches the folder of its rules.
    let log = tempfile::tempdir().expect("create a temporary folder");
    let report = h2load::run(&url, &file, &log.path().join("calls"));
    if contender != ApiContender::Ceiling {
        // A failed call has no message. Messages of successful calls differ in length by fewer
        // than three bytes, because protobuf omits a time of 0.
        let min_message = grpc_call::call_once(&url, &body) - 3;
        let min_bytes = report.calls * min_message;
        assert!(report.message_bytes >= min_bytes, "{contender:?} returned errors: {report:?}");
    }
    (
        report.calls,
        ApiTurn { per_second: report.per_second, cpu_us: 0.0, latencies: report.latencies },
    )
}

/// The method path and the request message. All calls use the same key, because `h2load` sends one
/// fixed body.
fn grpc_message(contender: ApiContender) -> (&'static str, Vec<u8>) {
    let key = b"key:000000000001";
    match contender {
        ApiContender::Tidegate | ApiContender::Ceiling => {
            let entry =
                [grpc_call::encode_field(1, b"key"), grpc_call::encode_field(2, key)].concat();
            let descriptor = grpc_call::encode_field(1, &entry);
            let call =
                [grpc_call::encode_field(1, b"bench"), grpc_call::encode_field(2, &descriptor)]
                    .concat();
            ("envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit", call)
        }
        ApiContender::Throttlecrab => {
            // Fields max_burst (2) and count_per_period (3) are a million (0xC0 0x84 0x3D),
            // period (4) is 60 and quantity (5) is 1.
            let numbers =
                [&[0x10, 0xC0, 0x84, 0x3D, 0x18, 0xC0, 0x84, 0x3D][..], &[0x20, 60, 0x28, 1]];
            (
                "throttlecrab.RateLimiter/Throttle",
                [grpc_call::encode_field(1, key), numbers.concat()].concat(),
            )
        }
    }
}
