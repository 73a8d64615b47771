//! The gateway's settings: where it listens and what is behind it. As typed, and checked with its files
//! read.

mod section;
mod upstreams;

use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::FalseyValueParser;
use tidegate_edge::gateway::{PassedHeader, Route, UpstreamSettings};
use tidegate_rules::decode::Fields;

use super::certificate::Certificate;
use super::listen::{DoorAt, Listen};
use super::section::{parsed, path, threads};
use super::value::{Length, UpstreamAt};
use super::{MOST_THREADS, cores};
use crate::failure::Failure;
use section::Section;
use upstreams::Behind;

/// The gateway unless it is said otherwise.
const DEFAULT_GATEWAY: Listen = Listen::loopback(8080);

/// The longest body of a request unless it is said otherwise.
const DEFAULT_MAX_BODY: Length = Length(100 * 1024 * 1024);

/// The flags of its certificate and key.
const FLAGS: [&str; 2] = ["--tls-cert", "--tls-key"];

/// What was typed about the gateway in one place.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct GatewayLayer {
    /// The API that the gateway is in front of, such as http://127.0.0.1:3000
    #[arg(long, value_name = "URL", env = "TIDEGATE_UPSTREAM", hide_env_values = true)]
    pub(crate) upstream: Option<UpstreamAt>,

    /// Where the gateway listens [default: 127.0.0.1:8080 if there is an upstream]
    #[arg(long, value_name = "ADDR", env = "TIDEGATE_GATEWAY", hide_env_values = true)]
    pub(crate) gateway: Option<Listen>,

    /// The gateway's certificate chain, in PEM: it then speaks TLS
    #[arg(long, value_name = "FILE", env = "TIDEGATE_TLS_CERT", hide_env_values = true)]
    pub(crate) tls_cert: Option<PathBuf>,

    /// The key to that certificate, in PEM
    #[arg(long, value_name = "FILE", env = "TIDEGATE_TLS_KEY", hide_env_values = true)]
    pub(crate) tls_key: Option<PathBuf>,

    /// Connections to the gateway begin with the PROXY protocol (v1 or v2), as a load balancer sends it
    #[arg(
        long,
        env = "TIDEGATE_PROXY_PROTOCOL",
        hide_env_values = true,
        num_args = 0,
        default_missing_value = "true",
        value_parser = FalseyValueParser::new()
    )]
    pub(crate) proxy_protocol: Option<bool>,

    /// The longest body of a request to the gateway [default: 100MiB]
    #[arg(long, value_name = "SIZE", env = "TIDEGATE_MAX_BODY", hide_env_values = true)]
    pub(crate) max_body: Option<Length>,

    /// Log a line for each request that the gateway has answered
    #[arg(
        long,
        env = "TIDEGATE_ACCESS_LOG",
        hide_env_values = true,
        num_args = 0,
        default_missing_value = "true",
        value_parser = FalseyValueParser::new()
    )]
    pub(crate) access_log: Option<bool>,

    /// Threads that the gateway works on [default: as many as there are cores]
    #[arg(
        long,
        value_name = "COUNT",
        value_parser = clap::value_parser!(u16).range(1..=i64::from(MOST_THREADS)),
        env = "TIDEGATE_GATEWAY_THREADS",
        hide_env_values = true
    )]
    pub(crate) gateway_threads: Option<u16>,

    /// Whether a charge is given back when no upstream could be reached: in the document only.
    #[arg(skip)]
    pub(crate) refund_unreachable: Option<bool>,

    /// Headers that clients may send although they would be dropped: in the document only.
    #[arg(skip)]
    pub(crate) pass_headers: Option<Vec<PassedHeader>>,

    /// Upstreams with several servers, and the routes to them: in the document only.
    #[arg(skip)]
    pub(crate) behind: Option<Behind>,
}

impl GatewayLayer {
    /// Whether it is said what the gateway is in front of.
    pub(crate) const fn is_in_front_of_something(&self) -> bool {
        self.upstream.is_some() || self.behind.is_some()
    }

    pub(super) fn read(fields: &mut Fields<'_>) -> Self {
        let Section { listen, refund_unreachable, pass_headers } = Section::read(fields);
        Self {
            upstream: fields.take("upstream").and_then(|field| parsed(&field)),
            gateway: listen,
            refund_unreachable,
            pass_headers,
            tls_cert: fields.take("tls_cert").and_then(|field| path(&field)),
            tls_key: fields.take("tls_key").and_then(|field| path(&field)),
            proxy_protocol: fields.take("proxy_protocol").and_then(|field| field.boolean()),
            max_body: fields.take("max_body").and_then(|field| parsed(&field)),
            access_log: fields.take("access_log").and_then(|field| field.boolean()),
            gateway_threads: fields.take("gateway_threads").and_then(|field| threads(&field)),
            behind: Behind::read(fields),
        }
    }

    pub(super) fn over(self, below: Self) -> Self {
        Self {
            upstream: self.upstream.or(below.upstream),
            gateway: self.gateway.or(below.gateway),
            tls_cert: self.tls_cert.or(below.tls_cert),
            tls_key: self.tls_key.or(below.tls_key),
            proxy_protocol: self.proxy_protocol.or(below.proxy_protocol),
            max_body: self.max_body.or(below.max_body),
            access_log: self.access_log.or(below.access_log),
            gateway_threads: self.gateway_threads.or(below.gateway_threads),
            refund_unreachable: self.refund_unreachable.or(below.refund_unreachable),
            pass_headers: self.pass_headers.or(below.pass_headers),
            behind: self.behind.or(below.behind),
        }
    }

    pub(super) fn beside(mut self, folder: &Path) -> Self {
        for path in [&mut self.tls_cert, &mut self.tls_key].into_iter().flatten() {
            *path = folder.join(&*path);
        }
        self.behind = self.behind.map(|behind| behind.beside(folder));
        self
    }
}

/// The gateway's settings, checked.
#[derive(Debug)]
pub(crate) struct GatewaySettings {
    pub(crate) at: DoorAt,
    pub(crate) certificate: Option<Certificate>,
    pub(crate) proxy_protocol: bool,
    pub(crate) max_body: Length,
    pub(crate) access_log: bool,
    pub(crate) threads: usize,
    pub(crate) refund_unreachable: bool,
    pub(crate) pass_headers: Vec<PassedHeader>,
    pub(crate) routes: Vec<Route>,
    pub(crate) upstreams: Vec<UpstreamSettings>,
}

impl GatewaySettings {
    /// Checks what was typed; none if there is to be no gateway.
    ///
    /// # Errors
    /// When a gateway is asked for that has nothing behind it, or a file cannot be used.
    pub(crate) fn check(typed: GatewayLayer) -> Result<Option<Self>, Failure> {
        if typed.gateway == Some(Listen::Off) {
            return Ok(None);
        }
        let (routes, upstreams) = upstreams::check(typed.upstream, typed.behind)?;
        if upstreams.is_empty() {
            return match typed.gateway {
                Some(_) => Err(Failure::Usage(
                    "--gateway needs to know what it is in front of\n  \
                     write: --upstream http://127.0.0.1:3000"
                        .to_owned(),
                )),
                None => Ok(None),
            };
        }
        Ok(Some(Self {
            at: Listen::or_default(typed.gateway, DEFAULT_GATEWAY),
            certificate: Certificate::check(FLAGS, typed.tls_cert, typed.tls_key)?,
            proxy_protocol: typed.proxy_protocol.unwrap_or(false),
            max_body: typed.max_body.unwrap_or(DEFAULT_MAX_BODY),
            access_log: typed.access_log.unwrap_or(false),
            threads: typed.gateway_threads.map_or_else(cores, usize::from),
            refund_unreachable: typed.refund_unreachable.unwrap_or(false),
            pass_headers: typed.pass_headers.unwrap_or_default(),
            routes,
            upstreams,
        }))
    }
}
