//! The gateway as a real process between real clients and upstreams.

mod client_identity;
mod delay_queue;
mod drain;
mod exact_admission;
mod graceful_restart;
mod graceful_restart_http2;
mod grpc;
mod http1_abuse;
mod http2_abuse;
mod jwt;
mod large_bodies;
mod listener_tls;
mod method_case;
mod path_normalization;
mod protocol_upgrade;
mod proxy_protocol;
mod quick_start;
mod reload;
mod routing;
mod smuggling;
mod socket_activation;
mod unreachable_upstream;
mod upstream_tls;
