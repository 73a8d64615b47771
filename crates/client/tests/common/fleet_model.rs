//! The model of a fleet of callers: instances that do not know of each other share a quota, which
//! is halved for a minute in the middle of a quarter of an hour.

use std::sync::Arc;
use std::time::Duration;

use http::Request;
use tidegate_client::ClientLayer;
use tidegate_response::HeaderStyle;
use tokio::time::{Instant, sleep, sleep_until};
use tower::{Layer as _, ServiceExt as _, service_fn};

use super::limited_server::{AdmissionLog, LimitedServer, TextBody};

const LENGTH: Duration = Duration::from_secs(900);
const HALVED_AT: Duration = Duration::from_secs(420);
const RESTORED_AT: Duration = Duration::from_secs(480);

/// Requests per second that the whole quota permits.
const FULL_RATE: f64 = 50.0;

/// A fleet of callers and the server's quota.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FleetModel {
    /// The algorithm and burst, as in a rule.
    pub(crate) algorithm: &'static str,
    /// `None` for a server that says nothing.
    pub(crate) headers: Option<HeaderStyle>,
    pub(crate) instances: u64,
    pub(crate) callers: u64,
    pub(crate) is_paced: bool,
    pub(crate) seed: u64,
}

/// What came of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct FleetOutcome {
    pub(crate) refused: usize,
    pub(crate) admitted: usize,
    /// The share of what the server would have admitted.
    pub(crate) used_share: f64,
    /// From the restored quota until the end of the first second with 95 % of it in use.
    pub(crate) recovery: Duration,
}

impl FleetModel {
    fn rules(&self, per_minute: u32) -> String {
        let Self { algorithm, .. } = self;
        format!("rules: [{{ id: partner, key_by: global, limit: {per_minute}/min {algorithm} }}]")
    }

    /// Runs the fleet. Needs paused time.
    pub(crate) async fn run(self) -> FleetOutcome {
        let server = LimitedServer::new(&self.rules(3_000), self.headers);
        let end = Instant::now() + LENGTH;
        for instance in 0..self.instances {
            self.start_instance(&server, instance, end);
        }
        self.change_quota(&server).await;
        sleep_until(end).await;
        let log = server.log();
        let available = self.count_available().await;
        FleetOutcome {
            refused: log.refused.len(),
            admitted: log.admitted.len(),
            used_share: log.admitted.len() as f64 / available as f64,
            recovery: recovery_time(&log),
        }
    }

    async fn change_quota(&self, server: &LimitedServer) {
        sleep(HALVED_AT).await;
        server.install(&self.rules(1_500)).await;
        sleep(RESTORED_AT - HALVED_AT).await;
        server.install(&self.rules(3_000)).await;
    }

    /// Starts the callers of one instance. Each sends its next request when the last is answered.
    fn start_instance(&self, server: &Arc<LimitedServer>, instance: u64, end: Instant) {
        let seed = self.seed * 1_000 + instance;
        let layer = ClientLayer::new().seed(seed).clone_bodies();
        let random = Arc::new(std::sync::Mutex::new(fastrand::Rng::with_seed(seed)));
        let server = Arc::clone(server);
        let http = service_fn(move |request: Request<TextBody>| {
            let (server, random) = (Arc::clone(&server), Arc::clone(&random));
            let delay = move || Duration::from_micros(random.lock().unwrap().u64(15_000..40_000));
            async move {
                sleep(delay()).await;
                let response = server.respond(request).await;
                sleep(delay()).await;
                response
            }
        });
        for _ in 0..self.callers {
            let (paced, bare) = (layer.layer(http.clone()), http.clone());
            let is_paced = self.is_paced;
            tokio::spawn(async move {
                while Instant::now() < end {
                    let request = Request::get("http://partner.example/").body(TextBody::default());
                    let request = request.unwrap();
                    let is_sent = match is_paced {
                        true => paced.clone().oneshot(request).await.is_ok(),
                        false => bare.clone().oneshot(request).await.is_ok(),
                    };
                    if !is_sent {
                        sleep(Duration::from_millis(100)).await;
                    }
                }
            });
        }
    }

    /// How many requests the server admits in the same time if it always gets more.
    async fn count_available(&self) -> usize {
        let server = LimitedServer::new(&self.rules(3_000), self.headers);
        let flood = async {
            while server.elapsed() < LENGTH {
                let refused = server.refused();
                while server.refused() == refused {
                    let _ = server.respond(Request::new(())).await;
                }
                sleep(Duration::from_millis(5)).await;
            }
        };
        // The quota changes first if both are due at the same time.
        tokio::join!(self.change_quota(&server), flood);
        server.log().admitted.len()
    }
}

fn recovery_time(log: &AdmissionLog) -> Duration {
    let second = Duration::from_secs(1);
    let step = Duration::from_millis(50);
    let is_full = |from: Duration| {
        let within = |at: &&Duration| (from..from + second).contains(*at);
        log.admitted.iter().filter(within).count() as f64 >= 0.95 * FULL_RATE
    };
    let mut from = RESTORED_AT;
    while !is_full(from) && from < LENGTH {
        from += step;
    }
    from + second - RESTORED_AT
}
