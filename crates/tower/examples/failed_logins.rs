//! A login that counts only failed attempts: five per minute and account, and twenty per minute and
//! address. Users who know their password are never refused.
//!
//! ```sh
//! cargo run -p tidegate-tower --example failed_logins
//! curl -i -X POST 'http://127.0.0.1:3000/login?user=ada' -d wrong
//! ```

use std::error::Error;
use std::net::SocketAddr;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::post;
use tidegate::Limiter;
use tidegate_tower::RateLimitLayer;

const RULES: &str = r#"
facts: [account]
rules:
  - { id: by-account, match: { path: /login }, key_by: account, limit: 5/min }
  - { id: by-address, match: { path: /login }, key_by: ip, limit: 20/min }
"#;

/// The service.
pub(crate) fn app() -> Result<Router, Box<dyn Error>> {
    let limiter = Limiter::builder().rules(RULES).build()?;
    let layer = RateLimitLayer::new(limiter)?
        .with_facts(|request, facts| {
            if let Some(user) = request.uri.query().and_then(|query| query.strip_prefix("user=")) {
                facts.set("account", user);
            }
        })
        // An attempt is charged before the password is checked, so concurrent guesses count too. A
        // success gives the charge back.
        .charge_if(|_rule, response| response.status == StatusCode::UNAUTHORIZED);
    Ok(Router::new().route("/login", post(log_in)).layer(layer))
}

async fn log_in(password: String) -> StatusCode {
    if password == "correct horse" { StatusCode::NO_CONTENT } else { StatusCode::UNAUTHORIZED }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let app = app()?.into_make_service_with_connect_info::<SocketAddr>();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    axum::serve(listener, app).await?;
    Ok(())
}
