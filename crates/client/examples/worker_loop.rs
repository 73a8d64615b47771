//! Workers that call a third-party API as fast as its rate limit permits, and no faster.
//!
//! ```sh
//! cargo run -p tidegate-client --example worker_loop -- http://127.0.0.1:8080/ 100
//! ```

use std::error::Error;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tidegate_client::{CallDeadline, ClientLayer, ClientStats};
use tokio::task::JoinSet;
use tower::{Layer as _, ServiceExt as _};

type ExampleResult<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Calls `url` this many times from eight workers.
pub async fn run(url: &str, calls: usize) -> ExampleResult<ClientStats> {
    let http = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    let client = ClientLayer::new().clone_bodies().layer(http);
    let mut workers = JoinSet::new();
    for worker in 0..8 {
        // All clones share one budget, so no worker needs to know of the others.
        let (client, url) = (client.clone(), url.to_owned());
        workers.spawn(async move {
            for _ in (worker..calls).step_by(8) {
                let mut request = Request::get(&url).body(Full::default())?;
                request.extensions_mut().insert(CallDeadline::after(Duration::from_secs(15)));
                let response = client.clone().oneshot(request).await?;
                if !response.status().is_success() {
                    return Err(format!("the server answered {}", response.status()).into());
                }
            }
            ExampleResult::Ok(())
        });
    }
    while let Some(result) = workers.join_next().await {
        result??;
    }
    Ok(client.stats())
}

#[tokio::main]
async fn main() -> ExampleResult<()> {
    let mut args = std::env::args().skip(1);
    let (Some(url), Some(calls)) = (args.next(), args.next()) else {
        return Err("usage: worker_loop URL CALLS".into());
    };
    let stats = run(&url, calls.parse()?).await?;
    println!("{} sent, {} paced, {} refused", stats.sent, stats.paced, stats.refused);
    Ok(())
}
