//! Network connections. Inbound: listeners, accept loop, TLS, PROXY protocol, HTTP framing checks,
//! worker threads and timeouts. Outbound: addresses, TLS and dialling.

pub mod coalesce_writes;
pub mod connect;
pub mod listen;
pub mod wake_slot;
