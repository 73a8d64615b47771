//! An axum service whose limits depend on the route and on the customer's tier.
//!
//! ```sh
//! cargo run -p tidegate-tower --example axum_service
//! curl -i -H 'x-api-key: demo' http://127.0.0.1:3000/search
//! ```

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::routing::get;
use axum::{Extension, Router};
use tidegate::{Decision, Limiter};
use tidegate_tower::RateLimitLayer;

const RULES: &str = r#"
identity:
  api_key: { header: x-api-key }
  tier: { subject: api_key, default: free }
subjects:
  - { api_key: acme-1, tier: paid }
rules:
  - { id: free, match: { tier: free }, key_by: api_key, limit: 10/min }
  - { id: paid, match: { tier: paid }, key_by: api_key, limit: 1000/min burst 100 }
  - { id: search, match: { path: /search }, key_by: api_key, limit: 2/s }
  - { id: writes, match: { endpoint: "POST|PUT|DELETE /items/*" }, key_by: ip, limit: 5/s }
"#;

/// The service. One layer around all routes is enough.
pub(crate) fn app(limiter: Limiter) -> Result<Router, Box<dyn Error>> {
    Ok(Router::new()
        .route("/search", get(|| async { "found\n" }))
        .route("/items/{id}", get(|| async { "item\n" }).post(|| async { "saved\n" }))
        .route("/quota", get(show_quota))
        .layer(RateLimitLayer::new(limiter)?))
}

/// A limiter with the rules of this service.
pub(crate) fn limiter() -> Result<Limiter, Box<dyn Error>> {
    Ok(Limiter::builder().rules(RULES).build()?)
}

/// Handlers find the decision in the request.
async fn show_quota(Extension(decision): Extension<Arc<Decision>>) -> String {
    match decision.remaining() {
        Some(remaining) => format!("{remaining} requests left\n"),
        None => "no limit\n".to_owned(),
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let app = app(limiter()?)?.into_make_service_with_connect_info::<SocketAddr>();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    axum::serve(listener, app).await?;
    Ok(())
}
