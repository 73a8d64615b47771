//! The gateway as its users meet it: the real program between real programs.

mod abuse;
mod activation;
mod bodies;
mod drain;
mod exact;
mod first_steps;
mod grpc;
mod http2_abuse;
mod identity;
mod methods;
mod paths;
mod proxy_protocol;
mod queue;
mod reload;
mod restart;
mod restart_http2;
mod routes;
mod smuggling;
mod tls;
mod tokens;
mod unreachable;
mod upgrade;
mod upstream_tls;
