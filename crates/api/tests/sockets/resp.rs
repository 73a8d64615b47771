//! Tests the RESP API over real sockets: pipelining, timeouts, connection limits and shutdown.

mod connection_limits;
mod drain;
mod pipelining;

use std::net::SocketAddr;
use std::sync::Arc;

use tidegate_api::resp::{RespApi, Settings, serve};
use tidegate_core::key::Secret;
use tidegate_core::time::ManualClock;
use tidegate_limiter::Limiter;
use tidegate_memory::{DEFAULT_MAX_BYTES, MemoryStore};
use tidegate_net::listen;
use tidegate_web::ProcessStatus;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use tidegate_fixtures::raw_client::RawClient;
use tidegate_fixtures::server::{START_TIME, TEN_PER_HOUR, compile_rules};

pub(crate) struct TestRespServer {
    pub(crate) address: SocketAddr,
    pub(crate) status: Arc<ProcessStatus>,
    pub(crate) stop: oneshot::Sender<()>,
    pub(crate) server_task: JoinHandle<()>,
}

impl TestRespServer {
    pub(crate) async fn start(listen: listen::Settings) -> Self {
        let store = MemoryStore::with_clock(ManualClock::new(START_TIME), DEFAULT_MAX_BYTES);
        let limiter = Arc::new(Limiter::new(store, compile_rules(TEN_PER_HOUR)));
        let settings = Settings { secret: Secret::UNSET, token: None };
        let api = Arc::new(RespApi::new(limiter, settings));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (status, (stop, stopped)) = (Arc::new(ProcessStatus::new()), oneshot::channel());
        let stopped = async {
            let _ = stopped.await;
        };
        let server_task = tokio::spawn(serve(listener, api, listen, Arc::clone(&status), stopped));
        Self { address, status, stop, server_task }
    }

    pub(crate) async fn connect(&self) -> RawClient {
        RawClient::connect_to(self.address).await
    }
}

/// Encodes a command as clients do.
pub(crate) fn encode_command(words: &str) -> Vec<u8> {
    let words: Vec<&str> = words.split(' ').collect();
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n{word}\r\n", word.len()).bytes());
    }
    bytes
}
