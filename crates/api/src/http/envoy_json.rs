//! `POST /json`: Envoy's rate limit service in proto-JSON, for clients of the reference server's
//! endpoint. Like that server, it returns 200 or 429, and 400 for every error.

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use tidegate_core::store::Store;

use super::HttpApi;
use super::authorization::ApiAccessError;
use crate::envoy::{EnvoyResponse, EnvoyResponseView, RateLimitCode, parse_json};
use tidegate_telemetry::trace::{self, ServerSpan};
use tidegate_web::http_response;
use tidegate_web::problem::HttpError;

impl<S: Store, L: Store> HttpApi<S, L> {
    /// Decides a request. A refund needs authorization, as `/v1/refund` does.
    pub(super) async fn handle_envoy_json(
        &self,
        body: &[u8],
        authorized: Result<(), ApiAccessError>,
        span: Option<&ServerSpan>,
    ) -> Result<Response<Full<Bytes>>, HttpError> {
        let bad_request = |detail: String| HttpError::new(StatusCode::BAD_REQUEST, detail);
        let call = parse_json(body).map_err(|malformed| HttpError {
            status: StatusCode::BAD_REQUEST,
            ..HttpError::from(malformed)
        })?;
        let checked = call.validate().and_then(|()| call.validate_units());
        checked.map_err(|invalid| bad_request(invalid.to_string()))?;
        if let (true, Err(refusal)) = (call.has_refund(), authorized) {
            return Ok(refusal.into_response());
        }
        let deciding = span.and_then(ServerSpan::start_decision);
        let decided = self.envoy.decide(&call).await;
        let decided = decided.map_err(|error| bad_request(error.to_string()))?;
        trace::finish_decision(deciding, decided.decisions());
        let response = EnvoyResponse::from_decisions(&decided);
        let status = match response.overall_code() {
            RateLimitCode::Ok => StatusCode::OK,
            RateLimitCode::OverLimit => StatusCode::TOO_MANY_REQUESTS,
        };
        Ok(http_response::json(status, &EnvoyResponseView(&response)))
    }
}
