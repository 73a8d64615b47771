//! An LLM proxy that limits tokens. The handler reserves the most that an answer may use, and
//! settles with what the model reports.
//!
//! ```sh
//! cargo run -p tidegate-tower --example llm_tokens
//! curl -i -H 'x-api-key: demo' http://127.0.0.1:3000/chat -d '{"prompt":"Hi","max_tokens":500}'
//! ```

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use axum::{Extension, Json, Router};
use serde_json::{Value, json};
use tidegate::{Decision, Facts, Limiter};
use tidegate_tower::RateLimitLayer;

/// The tokens of customers. A limiter of its own, because it counts another unit.
pub(crate) type TokenLimiter = Limiter;

/// The service. The layer limits requests, and the handler limits tokens.
pub(crate) fn app(tokens: TokenLimiter) -> Result<Router, Box<dyn Error>> {
    let requests = Limiter::builder()
        .rules(
            "{ identity: { api_key: { header: x-api-key } }, \
             rules: [{ id: requests, key_by: api_key, limit: 60/min }] }",
        )
        .build()?;
    Ok(Router::new()
        .route("/chat", post(chat))
        .layer(RateLimitLayer::new(requests)?)
        .with_state(tokens))
}

/// A limiter that counts tokens.
pub(crate) fn token_limiter() -> Result<TokenLimiter, Box<dyn Error>> {
    Ok(Limiter::builder().limit("40000/min by api_key").build()?)
}

async fn chat(
    State(tokens): State<TokenLimiter>,
    Extension(requests): Extension<Arc<Decision>>,
    headers: HeaderMap,
    Json(request): Json<Value>,
) -> Result<Json<Value>, (StatusCode, String)> {
    let api_key = headers.get("x-api-key").and_then(|key| key.to_str().ok()).unwrap_or_default();
    let most = request["max_tokens"].as_u64().and_then(|most| u32::try_from(most).ok());
    let reserved =
        tokens.check_cost(&Facts::from([("api_key", api_key)]), most.unwrap_or(4_096)).await;
    if !reserved.is_allowed() {
        let wait = reserved.retry_after();
        return Err((StatusCode::TOO_MANY_REQUESTS, format!("token limit; wait {wait:?}\n")));
    }
    match ask_model(&request).await {
        Ok((answer, used)) => {
            tokens.settle(reserved, used).await;
            Ok(Json(json!({
                "answer": answer,
                "tokens": used,
                "requests_left": requests.remaining(),
            })))
        }
        Err(error) => {
            tokens.refund(reserved).await;
            Err((StatusCode::BAD_GATEWAY, error))
        }
    }
}

/// Stands for the call of a model, which reports the tokens that it used.
async fn ask_model(request: &Value) -> Result<(String, u32), String> {
    let prompt = request["prompt"].as_str().ok_or("the request has no prompt\n")?;
    Ok((format!("You said: {prompt}"), 1_200))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let app = app(token_limiter()?)?.into_make_service_with_connect_info::<SocketAddr>();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    axum::serve(listener, app).await?;
    Ok(())
}
