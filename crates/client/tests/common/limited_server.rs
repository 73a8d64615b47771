//! A server that decides with a real limiter and sends its headers.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::Full;
use tidegate_core::time::{Micros, Timestamp};
use tidegate_fixtures::server::{ManualMemoryStore, compile_rules};
use tidegate_limiter::Limiter;
use tidegate_memory::{DEFAULT_MAX_BYTES, MemoryStore};
use tidegate_response::{HeaderSettings, HeaderStyle, refusal_response, write_headers};
use tidegate_rules::Facts;
use tokio::time::Instant;

/// The start of an hour, so that windows end at whole minutes.
const START_TIME: Timestamp = Timestamp::from_micros(1_699_999_200_000_000);

pub(crate) type TextBody = Full<Bytes>;

/// A server in virtual time. Its limiter's clock follows tokio's.
pub(crate) struct LimitedServer {
    limiter: Limiter<ManualMemoryStore>,
    clock: tidegate_core::time::ManualClock,
    started: Instant,
    headers: Option<HeaderSettings>,
    log: Mutex<AdmissionLog>,
}

/// What the server admitted and refused.
#[derive(Clone, Debug, Default)]
pub(crate) struct AdmissionLog {
    /// When each admitted request arrived.
    pub(crate) admitted: Vec<Duration>,
    /// When each refused request arrived.
    pub(crate) refused: Vec<Duration>,
}

impl LimitedServer {
    /// A server with these rules; without `headers` it sends none, not even `Retry-After`.
    pub(crate) fn new(rules: &str, headers: Option<HeaderStyle>) -> Arc<Self> {
        let clock = tidegate_core::time::ManualClock::new(START_TIME);
        let store = MemoryStore::with_clock(clock.clone(), DEFAULT_MAX_BYTES);
        Arc::new(Self {
            limiter: Limiter::new(store, compile_rules(rules)),
            clock,
            started: Instant::now(),
            headers: headers.map(|style| HeaderSettings { style, ..HeaderSettings::default() }),
            log: Mutex::default(),
        })
    }

    /// Replaces the rules, as a reload does.
    pub(crate) async fn install(&self, rules: &str) {
        self.advance_clock();
        self.limiter.install(compile_rules(rules)).await.unwrap();
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    pub(crate) fn log(&self) -> AdmissionLog {
        self.log.lock().unwrap().clone()
    }

    pub(crate) fn refused(&self) -> usize {
        self.log.lock().unwrap().refused.len()
    }

    /// Decides a request, and answers it with the limiter's headers.
    pub(crate) async fn respond<B>(
        &self,
        request: Request<B>,
    ) -> Result<Response<TextBody>, Infallible> {
        let now = self.advance_clock();
        let decision = self.limiter.decide(&Facts::new(), 1).await;
        let elapsed = self.elapsed();
        let mut log = self.log.lock().unwrap();
        let times = if decision.is_allowed() { &mut log.admitted } else { &mut log.refused };
        times.push(elapsed);
        let settings = self
            .headers
            .unwrap_or(HeaderSettings { style: HeaderStyle::None, ..HeaderSettings::default() });
        let mut response = match decision.is_allowed() {
            true => Response::new(TextBody::default()),
            false => refusal_response(&decision, request.headers(), &settings, 0),
        };
        match self.headers {
            Some(settings) => write_headers(&decision, &settings, 0, response.headers_mut()),
            None => *response.headers_mut() = HeaderMap::new(),
        }
        let date = std::time::UNIX_EPOCH + Duration::from_micros(now.as_micros());
        let date = httpdate::fmt_http_date(date).parse().unwrap();
        response.headers_mut().insert(http::header::DATE, date);
        Ok(response)
    }

    fn advance_clock(&self) -> Timestamp {
        let elapsed = u64::try_from(self.elapsed().as_micros()).unwrap();
        let now = START_TIME.plus(Micros::new(elapsed));
        self.clock.set(now);
        now
    }
}
