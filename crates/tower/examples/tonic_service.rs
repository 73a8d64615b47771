//! A tonic service. A refused call gets `RESOURCE_EXHAUSTED` and the time to wait.
//!
//! ```sh
//! cargo run -p tidegate-tower --example tonic_service
//! ```

use std::error::Error;

use tidegate::Limiter;
use tidegate_tower::RateLimitLayer;
use tokio::net::TcpListener;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

const RULES: &str = r#"
rules:
  - { id: health, match: { path: /grpc.health.v1.Health/* }, key_by: ip, limit: 3/min }
  - { id: calls, key_by: ip, limit: 100/s burst 200 }
"#;

/// Serves until dropped. The health service stands for yours.
pub(crate) async fn serve(listener: TcpListener) -> Result<(), Box<dyn Error + Send + Sync>> {
    let limiter = Limiter::builder().rules(RULES).build()?;
    let (_, health) = tonic_health::server::health_reporter();
    Server::builder()
        .layer(RateLimitLayer::new(limiter)?)
        .add_service(health)
        .serve_with_incoming(TcpIncoming::from(listener))
        .await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    serve(TcpListener::bind("127.0.0.1:50051").await?).await
}
