//! Listening: what comes before the first request of a connection.

#[allow(dead_code, reason = "read by the gateway's listener, which comes with it")]
pub(crate) mod proxy_protocol;
