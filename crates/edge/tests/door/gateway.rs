//! The gateway from outside: real sockets, an upstream that says exactly what it is told to say.

mod claims;
mod costs;
mod faults;
mod go_away;
mod http2;
mod identity;
mod limits;
mod methods;
mod own_answers;
mod passing;
mod queue;
mod sink;
mod smuggling;
mod tunnel;
mod unix;
mod uploads;
mod upstream;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::key::Secret;
use tidegate_core::time::{ManualClock, Timestamp};
use tidegate_edge::gateway::{
    Balance, Gateway, HostHeader, Route, Settings, Timeouts, Trust, UpstreamSettings,
};
use tidegate_edge::respond::HeaderSettings;
use tidegate_edge::{Status, listen};
use tidegate_engine::Limiter;
use tidegate_memory::{DEFAULT_MAX_BYTES, MemoryStore};
use tidegate_rules::{Document, RuleSet};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::house::{Caller, Store};
use upstream::Upstream;

/// So many that no test gets to the end of them.
const MANY: &str = "rules: [{ id: many, limit: 1000000/h }]";

struct Gate {
    address: SocketAddr,
    limiter: Arc<Limiter<Store>>,
    stop: oneshot::Sender<()>,
    served: JoinHandle<()>,
}

fn to(upstreams: &[SocketAddr]) -> Settings {
    let servers = upstreams.iter().map(|at| (format!("http://{at}").parse().unwrap(), 1)).collect();
    Settings {
        headers: HeaderSettings::default(),
        max_body_bytes: 1024 * 1024,
        passed_headers: Vec::new(),
        refund_unreachable: false,
        body_timeout: Duration::from_secs(30),
        max_waiting: 100,
        drain_timeout: Duration::from_secs(30),
        threads: 1,
        access_log: None,
        tracer: None,
        routes: vec![Route { host: None, prefix: "/".to_owned(), upstream: 0 }],
        upstreams: vec![UpstreamSettings {
            servers,
            balance: Balance::LeastLoaded,
            timeouts: Timeouts::default(),
            trust: Trust::nobody().unwrap(),
            host: HostHeader::Client,
            health: None,
        }],
    }
}

impl Gate {
    async fn open(rules: &str, upstream: &Upstream) -> Self {
        Self::open_with(rules, to(&[upstream.address]), listen::Settings::default()).await
    }

    async fn open_with(rules: &str, settings: Settings, listen: listen::Settings) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        Self { address, ..Self::open_on(listener, rules, settings, listen) }
    }

    /// Without an address of its own, for whoever knows where the listener is.
    fn open_on(
        listener: impl Into<listen::Listener> + Send + 'static,
        rules: &str,
        settings: Settings,
        listen: listen::Settings,
    ) -> Self {
        let document = Document::parse("rules.yaml", rules).unwrap();
        let rules = RuleSet::compile(&document, Secret::UNSET).unwrap();
        let clock = ManualClock::new(Timestamp::from_micros(1_700_000_000_000_000));
        let store = MemoryStore::with_clock(clock, DEFAULT_MAX_BYTES);
        let limiter = Arc::new(Limiter::new(store, rules));
        let status = Arc::new(Status::new());
        let gateway = Gateway::new(Arc::clone(&limiter), Arc::clone(&status), settings).unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let (stop, stopped) = oneshot::channel();
        let stopped = async {
            let _ = stopped.await;
        };
        let listen = listen::Settings { http2: true, ..listen };
        let served =
            tokio::spawn(listen::serve(listener, Arc::new(gateway), listen, status, stopped));
        Self { address, limiter, stop, served }
    }

    async fn caller(&self) -> Caller {
        Caller::at(self.address).await
    }
}
