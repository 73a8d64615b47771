//! A reqwest client behind the layer: an adapter of eight lines.
//!
//! ```sh
//! cargo run -p tidegate-client --example reqwest_client -- http://127.0.0.1:8080/ 100
//! ```

use std::error::Error;

use http::{Request, Response};
use reqwest::Body;
use tidegate_client::{ClientLayer, ClientStats};
use tower::{Layer as _, Service, ServiceExt as _, service_fn};

type ExampleResult<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Makes a reqwest client a service of `http` requests.
pub fn as_http_service(
    client: reqwest::Client,
) -> impl Service<Request<Body>, Response = Response<Body>, Error = reqwest::Error, Future: Send>
+ Clone
+ Send
+ Sync
+ 'static {
    service_fn(move |request: Request<Body>| {
        let client = client.clone();
        async move { client.execute(request.try_into()?).await.map(Response::from) }
    })
}

/// Clones a body that is in memory; a stream can be sent only once.
pub fn clone_body(body: &Body) -> Option<Body> {
    body.as_bytes().map(|bytes| Body::from(bytes.to_vec()))
}

/// Calls `url` this many times.
pub async fn run(url: &str, calls: usize) -> ExampleResult<ClientStats> {
    let http = as_http_service(reqwest::Client::new());
    let client = ClientLayer::new().clone_bodies_with(clone_body).layer(http);
    for _ in 0..calls {
        let response = client.clone().oneshot(Request::get(url).body(Body::from(""))?).await?;
        if !response.status().is_success() {
            return Err(format!("the server answered {}", response.status()).into());
        }
    }
    Ok(client.stats())
}

#[tokio::main]
async fn main() -> ExampleResult<()> {
    let mut args = std::env::args().skip(1);
    let (Some(url), Some(calls)) = (args.next(), args.next()) else {
        return Err("usage: reqwest_client URL CALLS".into());
    };
    let stats = run(&url, calls.parse()?).await?;
    println!("{} sent, {} paced, {} refused", stats.sent, stats.paced, stats.refused);
    Ok(())
}
