//! Settings of the gateway: its listener, TLS, upstreams and routes.

mod section;
mod upstreams;

use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::FalseyValueParser;
use tidegate_gateway::{Balance, HashInput, PassthroughHeader, UpstreamRoute, UpstreamSettings};
use tidegate_rules::decode::FieldMap;
use tidegate_rules::identity::IdentityConfig;

use super::certificate::ListenerCertificate;
use super::listen::{ListenSetting, ListenSpec};
use super::section::{read_parsed, read_path, read_threads};
use super::value::{BodySize, UpstreamUrl};
use super::{MAX_THREADS, core_count};
use crate::error::CommandError;
use section::GatewaySection;
use upstreams::RoutingSection;

/// Default address of the gateway.
const DEFAULT_GATEWAY: ListenSpec = ListenSpec::loopback(8080);

/// Default limit for request bodies.
const DEFAULT_MAX_BODY: BodySize = BodySize(100 * 1024 * 1024);

/// Flags for the TLS certificate chain and its key.
const TLS_FLAGS: [&str; 2] = ["--tls-cert", "--tls-key"];

/// One layer of the gateway's settings.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct PartialGatewaySettings {
    /// Proxy requests to this API, such as http://127.0.0.1:3000
    #[arg(long, value_name = "URL", env = "TIDEGATE_UPSTREAM", hide_env_values = true)]
    pub upstream: Option<UpstreamUrl>,

    /// Gateway address [default: 127.0.0.1:8080 if an upstream is set]
    #[arg(long, value_name = "ADDR", env = "TIDEGATE_GATEWAY", hide_env_values = true)]
    pub gateway: Option<ListenSpec>,

    /// TLS certificate chain of the gateway, in PEM; enables TLS
    #[arg(long, value_name = "FILE", env = "TIDEGATE_TLS_CERT", hide_env_values = true)]
    pub(crate) tls_cert: Option<PathBuf>,

    /// Private key of that certificate, in PEM
    #[arg(long, value_name = "FILE", env = "TIDEGATE_TLS_KEY", hide_env_values = true)]
    pub(crate) tls_key: Option<PathBuf>,

    /// Expect the PROXY protocol (v1 or v2) on gateway connections, as sent by a load balancer
    #[arg(
        long,
        env = "TIDEGATE_PROXY_PROTOCOL",
        hide_env_values = true,
        num_args = 0,
        default_missing_value = "true",
        value_parser = FalseyValueParser::new()
    )]
    pub(crate) proxy_protocol: Option<bool>,

    /// Largest request body that the gateway accepts [default: 100MiB]
    #[arg(long, value_name = "SIZE", env = "TIDEGATE_MAX_BODY", hide_env_values = true)]
    pub(crate) max_body: Option<BodySize>,

    /// Log one line per request that the gateway answers
    #[arg(
        long,
        env = "TIDEGATE_ACCESS_LOG",
        hide_env_values = true,
        num_args = 0,
        default_missing_value = "true",
        value_parser = FalseyValueParser::new()
    )]
    pub(crate) access_log: Option<bool>,

    /// Worker threads of the gateway [default: number of cores]
    #[arg(
        long,
        value_name = "COUNT",
        value_parser = clap::value_parser!(u16).range(1..=i64::from(MAX_THREADS)),
        env = "TIDEGATE_GATEWAY_THREADS",
        hide_env_values = true
    )]
    pub(crate) gateway_threads: Option<u16>,

    /// Whether to refund the charge when no upstream could be reached. Document only.
    #[arg(skip)]
    pub(crate) refund_unreachable: Option<bool>,

    /// Client headers to forward although the gateway strips them by default. Document only.
    #[arg(skip)]
    pub(crate) pass_headers: Option<Vec<PassthroughHeader>>,

    /// Upstreams with several servers, and the routes to them. Document only.
    #[arg(skip)]
    pub(crate) routing: Option<RoutingSection>,
}

impl PartialGatewaySettings {
    /// Whether an upstream is configured.
    pub const fn has_upstream(&self) -> bool {
        self.upstream.is_some() || self.routing.is_some()
    }

    pub(super) fn read(fields: &mut FieldMap<'_>) -> Self {
        let GatewaySection { listen, refund_unreachable, pass_headers } =
            GatewaySection::read(fields);
        Self {
            upstream: fields.take("upstream").and_then(|field| read_parsed(&field)),
            gateway: listen,
            refund_unreachable,
            pass_headers,
            tls_cert: fields.take("tls_cert").and_then(|field| read_path(&field)),
            tls_key: fields.take("tls_key").and_then(|field| read_path(&field)),
            proxy_protocol: fields.take("proxy_protocol").and_then(|field| field.boolean()),
            max_body: fields.take("max_body").and_then(|field| read_parsed(&field)),
            access_log: fields.take("access_log").and_then(|field| field.boolean()),
            gateway_threads: fields.take("gateway_threads").and_then(|field| read_threads(&field)),
            routing: RoutingSection::read(fields),
        }
    }

    pub(super) fn with_fallback(self, below: Self) -> Self {
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
            routing: self.routing.or(below.routing),
        }
    }

    pub(super) fn resolve_paths(mut self, folder: &Path) -> Self {
        for path in [&mut self.tls_cert, &mut self.tls_key].into_iter().flatten() {
            *path = folder.join(&*path);
        }
        self.routing = self.routing.map(|routing| routing.resolve_paths(folder));
        self
    }
}

/// Validated settings of the gateway.
#[derive(Debug)]
pub struct GatewaySettings {
    /// Where the gateway listens.
    pub listen: ListenSetting,
    /// The TLS certificate, if the gateway serves TLS.
    pub certificate: Option<ListenerCertificate>,
    pub(crate) proxy_protocol: bool,
    pub(crate) max_body: BodySize,
    pub(crate) access_log: bool,
    pub(crate) threads: usize,
    pub(crate) refund_unreachable: bool,
    pub(crate) pass_headers: Vec<PassthroughHeader>,
    /// Which requests go to which upstream; `upstream` is an index into `upstreams`.
    pub routes: Vec<UpstreamRoute>,
    /// All upstreams.
    pub upstreams: Vec<UpstreamSettings>,
}

impl GatewaySettings {
    /// Validates the settings; `None` if the gateway is disabled.
    ///
    /// # Errors
    /// When `gateway` is set without an upstream, or a file is unreadable or invalid.
    pub fn check(typed: PartialGatewaySettings) -> Result<Option<Self>, CommandError> {
        if typed.gateway == Some(ListenSpec::Off) {
            return Ok(None);
        }
        let (routes, upstreams) = upstreams::check_routing(typed.upstream, typed.routing)?;
        if upstreams.is_empty() {
            return match typed.gateway {
                Some(_) => Err(CommandError::Usage(
                    "--gateway needs an upstream to proxy to\n  \
                     write: --upstream http://127.0.0.1:3000"
                        .to_owned(),
                )),
                None => Ok(None),
            };
        }
        Ok(Some(Self {
            listen: ListenSpec::explicit_or_default(typed.gateway, DEFAULT_GATEWAY),
            certificate: ListenerCertificate::check(TLS_FLAGS, typed.tls_cert, typed.tls_key)?,
            proxy_protocol: typed.proxy_protocol.unwrap_or(false),
            max_body: typed.max_body.unwrap_or(DEFAULT_MAX_BODY),
            access_log: typed.access_log.unwrap_or(false),
            threads: typed.gateway_threads.map_or_else(core_count, usize::from),
            refund_unreachable: typed.refund_unreachable.unwrap_or(false),
            pass_headers: typed.pass_headers.unwrap_or_default(),
            routes,
            upstreams,
        }))
    }

    /// Checks that requests have the facts by which upstreams select servers. Without them, every
    /// request would go to the least loaded server.
    ///
    /// # Errors
    /// When a fact is not supplied.
    pub fn check_hash_inputs(&self, identity: &IdentityConfig) -> Result<(), CommandError> {
        let hashed = self.upstreams.iter().filter_map(|upstream| match &upstream.balance {
            Balance::Hash(input) => Some(input),
            Balance::LeastLoaded | Balance::Weighted => None,
        });
        for input in hashed {
            if let HashInput::Fact(name) = input
                && !input.is_supplied(identity)
            {
                return Err(CommandError::Rejected(format!(
                    "`balance: {{ hash: {name} }}`: no request at the gateway has the fact `{name}`\n  \
                     write: an `identity` entry for `{name}`, or `hash: {{ header: NAME }}`"
                )));
            }
        }
        Ok(())
    }
}
