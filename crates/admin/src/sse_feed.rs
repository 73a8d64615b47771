//! `GET /v1/live`: events of this node as server-sent events, for the dashboard.

use std::sync::Arc;

use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use tidegate_telemetry::live_feed::{LiveBroadcaster, MAX_LISTENERS, TooManyListenersError};
use tidegate_web::problem::HttpError;

use super::response_body::AdminBody;

/// Starts a stream of events that lasts as long as the connection.
pub(super) fn open_feed(events: &Arc<LiveBroadcaster>) -> Result<Response<AdminBody>, HttpError> {
    let feed = events.subscribe().map_err(|TooManyListenersError| {
        let detail = format!(
            "too many live listeners (max {MAX_LISTENERS}); close a dashboard tab, or read /metrics"
        );
        HttpError::new(StatusCode::SERVICE_UNAVAILABLE, detail)
    })?;
    let mut response = Response::new(AdminBody::Live(feed));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    Ok(response)
}
