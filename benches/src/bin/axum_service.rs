//! An axum service that responds `hello`: the contender of the middleware benchmark.
//!
//! `axum_service 127.0.0.1:8000 KIND` listens on the address. KIND says which layer is around the
//! route; no layer refuses a request. All kinds use the same allocator and runtime.

#![expect(clippy::expect_used, reason = "a benchmark that cannot run should say why and stop")]

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::error_handling::HandleErrorLayer;
use axum::http::StatusCode;
use axum::routing::get;
use tidegate::Limiter;
use tidegate_tower::{HeaderSettings, HeaderStyle, RateLimitLayer};
use tokio::net::TcpListener;
use tower::ServiceBuilder;
use tower_governor::GovernorLayer;
use tower_governor::governor::GovernorConfigBuilder;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Far above what a client can send.
const BURST: u32 = 1_000_000;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [listen, kind] = args.as_slice() else { panic!("usage: axum_service LISTEN KIND") };
    let listen: SocketAddr = listen.parse().expect("LISTEN is an address and port");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.expect("build the tokio runtime").block_on(serve(listen, kind));
}

async fn serve(listen: SocketAddr, kind: &str) {
    let routes = Router::new().route("/api/things", get(|| async { "hello" }));
    let service = match kind {
        "bare" => routes,
        "one-rule" => routes.layer(tidegate(include_str!("../gateway/setups/one_rule.yaml"))),
        "one-rule-no-headers" => {
            let headers = HeaderSettings { style: HeaderStyle::None, ..HeaderSettings::default() };
            let layer = tidegate(include_str!("../gateway/setups/one_rule.yaml"));
            routes.layer(layer.headers(headers))
        }
        "three-rules" => routes.layer(tidegate(include_str!("../gateway/setups/three_rules.yaml"))),
        "tower-governor" => {
            let mut config = GovernorConfigBuilder::default();
            let config = config.per_nanosecond(1_000).burst_size(BURST).finish();
            routes.layer(GovernorLayer::new(config.expect("a valid configuration")))
        }
        "tower-governor-headers" => {
            let mut config = GovernorConfigBuilder::default();
            let config = config.per_nanosecond(1_000).burst_size(BURST).use_headers().finish();
            routes.layer(GovernorLayer::new(config.expect("a valid configuration")))
        }
        "tower" => {
            let failed = |_| async { StatusCode::INTERNAL_SERVER_ERROR };
            let layers = ServiceBuilder::new()
                .layer(HandleErrorLayer::new(failed))
                .buffer(1_024)
                .rate_limit(BURST.into(), Duration::from_secs(1));
            routes.layer(layers)
        }
        other => panic!("unknown kind `{other}`"),
    };
    let listener = TcpListener::bind(listen).await.expect("bind the LISTEN address");
    let service = service.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, service).await.expect("serve");
}

fn tidegate(rules: &str) -> RateLimitLayer {
    let limiter = Limiter::builder().rules(rules).build().expect("valid rules");
    RateLimitLayer::new(limiter).expect("facts that every request has")
}
