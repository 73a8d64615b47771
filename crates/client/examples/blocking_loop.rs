//! A program without async code: a plain thread that calls an API in a loop.
//!
//! ```sh
//! cargo run -p tidegate-client --example blocking_loop -- http://127.0.0.1:8080/ 100
//! ```

use std::error::Error;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tidegate_client::{ClientLayer, ClientService, ClientStats, CloneBodies};
use tokio::runtime::{Builder, Runtime};
use tower::{Layer as _, ServiceExt as _};

type ExampleResult<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// A client whose calls block the calling thread, also while they wait for their turn.
pub struct BlockingClient {
    runtime: Runtime,
    client: ClientService<Client<HttpConnector, Full<Bytes>>, CloneBodies>,
}

impl BlockingClient {
    /// A client with its runtime.
    pub fn new() -> ExampleResult<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let http = Client::builder(TokioExecutor::new()).build_http();
        Ok(Self { runtime, client: ClientLayer::new().clone_bodies().layer(http) })
    }

    /// Sends a request when its turn comes, and returns the status.
    pub fn get(&self, url: &str) -> ExampleResult<StatusCode> {
        let request = Request::get(url).body(Full::default())?;
        let response = self.runtime.block_on(self.client.clone().oneshot(request))?;
        Ok(response.status())
    }

    /// What the client did so far.
    pub fn stats(&self) -> ClientStats {
        self.client.stats()
    }
}

/// Calls `url` this many times.
pub fn run(url: &str, calls: usize) -> ExampleResult<ClientStats> {
    let client = BlockingClient::new()?;
    for _ in 0..calls {
        let status = client.get(url)?;
        if !status.is_success() {
            return Err(format!("the server answered {status}").into());
        }
    }
    Ok(client.stats())
}

fn main() -> ExampleResult<()> {
    let mut args = std::env::args().skip(1);
    let (Some(url), Some(calls)) = (args.next(), args.next()) else {
        return Err("usage: blocking_loop URL CALLS".into());
    };
    let stats = run(&url, calls.parse()?)?;
    println!("{} sent, {} paced, {} refused", stats.sent, stats.paced, stats.refused);
    Ok(())
}
