//! Tests of the gateway over real sockets, with scripted upstreams.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod client_identity;
mod client_limits;
mod counting_upstream;
mod delay_queue;
mod gateway_responses;
mod http2;
mod method_case;
mod proxying;
mod request_costs;
mod scripted_upstream;
mod smuggling;
mod unix_socket;
mod untrusted_headers;
mod upgrades;
mod upload_costs;
mod upstream_faults;
mod upstream_goaway;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::key::Secret;
use tidegate_core::time::{ManualClock, Timestamp};
use tidegate_gateway::{
    Balance, Gateway, HostHeader, Settings, UpstreamRoute, UpstreamSettings, UpstreamTimeouts,
};
use tidegate_limiter::Limiter;
use tidegate_memory::{DEFAULT_MAX_BYTES, MemoryStore};
use tidegate_net::connect::OutboundTls;
use tidegate_net::listen;
use tidegate_response::HeaderSettings;
use tidegate_rules::{Document, RuleSet};
use tidegate_web::ProcessStatus;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use scripted_upstream::ScriptedUpstream;
use tidegate_fixtures::fixture::{HttpTestStore, RawClient};

/// A limit that no test reaches.
const UNREACHED_LIMIT: &str = "rules: [{ id: many, limit: 1000000/h }]";

struct TestGateway {
    address: SocketAddr,
    limiter: Arc<Limiter<HttpTestStore>>,
    stop: oneshot::Sender<()>,
    server_task: JoinHandle<()>,
}

fn settings_for(upstreams: &[SocketAddr]) -> Settings {
    let servers = upstreams.iter().map(|at| (format!("http://{at}").parse().unwrap(), 1)).collect();
    Settings {
        headers: HeaderSettings::default(),
        max_body_bytes: 1024 * 1024,
        passthrough_headers: Vec::new(),
        refund_unreachable: false,
        body_timeout: Duration::from_secs(30),
        max_waiting: 100,
        drain_timeout: Duration::from_secs(30),
        threads: 1,
        access_log: None,
        tracer: None,
        routes: vec![UpstreamRoute { host: None, prefix: "/".to_owned(), upstream: 0 }],
        upstreams: vec![UpstreamSettings {
            servers,
            balance: Balance::LeastLoaded,
            timeouts: UpstreamTimeouts::default(),
            tls: OutboundTls::without_roots().unwrap(),
            host: HostHeader::Client,
            health: None,
        }],
    }
}

impl TestGateway {
    async fn start(rules: &str, upstream: &ScriptedUpstream) -> Self {
        Self::start_with(rules, settings_for(&[upstream.address]), listen::Settings::default())
            .await
    }

    async fn start_with(rules: &str, settings: Settings, listen: listen::Settings) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        Self { address, ..Self::start_on_listener(listener, rules, settings, listen) }
    }

    /// Starts without a known address, for tests that have the listener's.
    fn start_on_listener(
        listener: impl Into<listen::BoundListener> + Send + 'static,
        rules: &str,
        settings: Settings,
        listen: listen::Settings,
    ) -> Self {
        let document = Document::parse("rules.yaml", rules).unwrap();
        let rules = RuleSet::compile(&document, Secret::UNSET).unwrap();
        let clock = ManualClock::new(Timestamp::from_micros(1_700_000_000_000_000));
        let store = MemoryStore::with_clock(clock, DEFAULT_MAX_BYTES);
        let limiter = Arc::new(Limiter::new(store, rules));
        let status = Arc::new(ProcessStatus::new());
        let gateway = Gateway::new(Arc::clone(&limiter), Arc::clone(&status), settings).unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let (stop, stopped) = oneshot::channel();
        let stopped = async {
            let _ = stopped.await;
        };
        let listen = listen::Settings { http2: true, ..listen };
        let server_task =
            tokio::spawn(listen::serve(listener, Arc::new(gateway), listen, status, stopped));
        Self { address, limiter, stop, server_task }
    }

    async fn connect(&self) -> RawClient {
        RawClient::connect_to(self.address).await
    }
}
