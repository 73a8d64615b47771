//! The document's `upstreams:` and `routes:` fields.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tidegate_core::time::Micros;
use tidegate_gateway::{
    Balance, HashInput, HostHeader, UpstreamHealthCheck, UpstreamRoute, UpstreamSettings,
    UpstreamTimeouts,
};
use tidegate_net::connect::{OutboundAddress, OutboundTls};
use tidegate_rules::decode::{Field, FieldMap};
use tidegate_rules::diagnostic::FieldError;
use tidegate_rules::yaml::YamlValue;

use super::super::read_file;
use super::super::section::{read_parsed, read_path};
use super::super::value::UpstreamUrl;
use crate::error::CommandError;

/// Load-balancing policies without settings.
#[derive(Clone, Copy)]
enum BalanceName {
    LeastLoaded,
    Weighted,
}

const BALANCES: [(&str, BalanceName); 2] =
    [("least_loaded", BalanceName::LeastLoaded), ("weighted", BalanceName::Weighted)];
const HOSTS: [(&str, HostHeader); 2] =
    [("client", HostHeader::Client), ("server", HostHeader::Server)];

/// Largest weight of a server.
const MAX_WEIGHT: u64 = 1_000;
/// Largest number of consecutive health check results before a server changes state.
const MAX_THRESHOLD: u64 = 100;

/// Upstreams and routes as configured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RoutingSection {
    upstreams: Vec<UpstreamSection>,
    /// Routes with the upstream's name; `check_routing` replaces it by an index.
    routes: Vec<(UpstreamRoute, String)>,
}

/// One upstream as configured.
#[derive(Clone, Debug, PartialEq, Eq)]
struct UpstreamSection {
    name: String,
    servers: Vec<(OutboundAddress, u32)>,
    balance: Balance,
    timeouts: UpstreamTimeouts,
    host: HostHeader,
    ca_file: Option<PathBuf>,
    health: Option<UpstreamHealthCheck>,
}

impl RoutingSection {
    pub(super) fn read(fields: &mut FieldMap<'_>) -> Option<Self> {
        let upstreams = fields.take("upstreams");
        let routes = fields.take("routes");
        if upstreams.is_none() && routes.is_none() {
            return None;
        }
        let named = upstreams.as_ref().and_then(Field::fields);
        let named: Vec<_> = named.iter().flat_map(FieldMap::all_fields).collect();
        let upstreams: Vec<UpstreamSection> =
            named.iter().filter_map(|(name, _, field)| read_upstream(name, field)).collect();
        let routes = routes.and_then(|field| field.list()).unwrap_or_default();
        let routes: Vec<(UpstreamRoute, String)> =
            routes.iter().filter_map(|field| read_route(field, &upstreams)).collect();
        // A single upstream without routes gets every request.
        if named.len() > 1 || !routes.is_empty() {
            named.iter().for_each(|(name, _, field)| refuse_unused(name, field, &routes));
        }
        Some(Self { upstreams, routes })
    }

    pub(super) fn resolve_paths(mut self, folder: &Path) -> Self {
        for upstream in &mut self.upstreams {
            upstream.ca_file = upstream.ca_file.take().map(|path| folder.join(path));
        }
        self
    }
}

fn read_upstream(name: &str, field: &Field<'_>) -> Option<UpstreamSection> {
    let mut fields = field.fields()?;
    let servers = fields.require("servers", "`servers: [http://10.0.0.1:3000]`");
    let list = servers.map(|field| field.non_empty_items()).unwrap_or_default();
    let servers = list.iter().filter_map(read_server).collect();
    let defaults = UpstreamTimeouts::default();
    let mut time = |name, default: Duration| {
        fields.take(name).and_then(|field| field.duration()).map_or(default, Duration::from)
    };
    let timeouts = UpstreamTimeouts {
        connect: time("connect_timeout", defaults.connect),
        response: time("response_timeout", defaults.response),
        idle: time("idle_timeout", defaults.idle),
        pool_idle: time("pool_idle_timeout", defaults.pool_idle),
    };
    let balance = fields.take("balance").and_then(|field| read_balance(&field));
    let host = fields.take("host").and_then(|field| field.choice(&HOSTS));
    let ca_file = fields.take("ca_file").and_then(|field| read_path(&field));
    let health = fields.take("health").and_then(|field| read_health(&field));
    fields.finish();
    Some(UpstreamSection {
        name: name.to_owned(),
        servers,
        balance: balance.unwrap_or_default(),
        timeouts,
        host: host.unwrap_or_default(),
        ca_file,
        health,
    })
}

/// Reads `least_loaded`, `weighted`, `{ hash: FACT }` or `{ hash: { header: NAME } }`.
fn read_balance(field: &Field<'_>) -> Option<Balance> {
    if matches!(field.node().value, YamlValue::Scalar { .. }) {
        return field.choice(&BALANCES).map(|name| match name {
            BalanceName::LeastLoaded => Balance::LeastLoaded,
            BalanceName::Weighted => Balance::Weighted,
        });
    }
    let mut fields = field.fields()?;
    let hash = fields.require("hash", "`hash: api_key` or `hash: { header: x-session }`");
    fields.finish();
    let hash = hash?;
    if matches!(hash.node().value, YamlValue::Scalar { .. }) {
        return Some(Balance::Hash(HashInput::Fact(hash.non_empty_text()?.to_owned())));
    }
    let mut fields = hash.fields()?;
    let header = fields.require("header", "`header: x-session`");
    fields.finish();
    Some(Balance::Hash(HashInput::Header(header?.header_name()?)))
}

/// Reads a server: a URL, or a mapping with `url` and `weight`.
fn read_server(field: &Field<'_>) -> Option<(OutboundAddress, u32)> {
    let address = |field: &Field<'_>| read_parsed::<UpstreamUrl>(field).map(|at| at.0);
    if matches!(field.node().value, YamlValue::Scalar { .. }) {
        return Some((address(field)?, 1));
    }
    let mut fields = field.fields()?;
    let url = fields.require("url", "`url: http://10.0.0.1:3000`");
    let weight = fields.take("weight").map(|field| field.integer(1, MAX_WEIGHT));
    fields.finish();
    let weight = weight.unwrap_or(Some(1)).and_then(|weight| u32::try_from(weight).ok());
    Some((url.as_ref().and_then(address)?, weight?))
}

fn read_health(field: &Field<'_>) -> Option<UpstreamHealthCheck> {
    let mut fields = field.fields()?;
    let path = fields.require("path", "`path: /healthz`");
    let path = path.and_then(|field| read_route_path(&field));
    let mut time = |name, default| {
        let typed = fields.take(name).and_then(|field| field.duration());
        Duration::from(typed.unwrap_or(default))
    };
    let interval = time("interval", Micros::from_secs(5));
    let timeout = time("timeout", Micros::from_secs(2));
    let mut count = |name, default| {
        let typed = fields.take(name).and_then(|field| field.integer(1, MAX_THRESHOLD));
        typed.and_then(|count| u32::try_from(count).ok()).unwrap_or(default)
    };
    let (unhealthy, healthy) = (count("unhealthy_threshold", 3), count("healthy_threshold", 2));
    fields.finish();
    Some(UpstreamHealthCheck {
        path: path?,
        interval,
        timeout,
        unhealthy_threshold: unhealthy,
        healthy_threshold: healthy,
    })
}

fn read_route(field: &Field<'_>, upstreams: &[UpstreamSection]) -> Option<(UpstreamRoute, String)> {
    let mut fields = field.fields()?;
    let host = fields.take("host").and_then(|field| field.non_empty_text().map(str::to_owned));
    let prefix = fields.take("path").map(|field| read_route_path(&field));
    let upstream = fields.require("upstream", "`upstream:` and the name of an upstream");
    fields.finish();
    let upstream = upstream?;
    let name = upstream.non_empty_text()?;
    if !upstreams.iter().any(|known| known.name == name) {
        let known: Vec<&str> = upstreams.iter().map(|known| known.name.as_str()).collect();
        let remark = FieldError::new("no upstream has this name").with_found(name);
        upstream.report(remark.with_hint(match known.as_slice() {
            [] => "an upstream with this name under `upstreams:`".to_owned(),
            known => format!("one of {}", known.join(", ")),
        }));
        return None;
    }
    let prefix = prefix.unwrap_or_else(|| Some("/".to_owned()))?;
    Some((UpstreamRoute { host, prefix, upstream: 0 }, name.to_owned()))
}

fn refuse_unused(name: &str, field: &Field<'_>, routes: &[(UpstreamRoute, String)]) {
    if !routes.iter().any(|(_, upstream)| upstream == name) {
        let remark = FieldError::new("no route uses this upstream").with_found(name);
        field.report(remark.with_hint(format!("routes: [{{ path: /, upstream: {name} }}]")));
    }
}

/// Reads a path and requires its canonical form, because requests are normalized before they are
/// routed.
fn read_route_path(field: &Field<'_>) -> Option<String> {
    let text = field.non_empty_text()?;
    match tidegate_identity::path::canonical(text) {
        Ok(canonical) if canonical == text => Some(text.to_owned()),
        Ok(canonical) => {
            let remark = FieldError::new("this path is not normalized, so no request matches it")
                .with_found(text);
            field.report(remark.with_hint(format!("`{canonical}`")));
            None
        }
        Err(error) => {
            field.report(
                FieldError::new(error.to_string())
                    .with_found(text)
                    .with_hint("a path such as `/api`"),
            );
            None
        }
    }
}

/// Merges the configured upstreams with the single upstream of `--upstream`. The latter receives
/// requests that match no route.
///
/// # Errors
/// When a CA file is unreadable or invalid, or an upstream has no route.
pub(super) fn check_routing(
    single: Option<UpstreamUrl>,
    routing: Option<RoutingSection>,
) -> Result<(Vec<UpstreamRoute>, Vec<UpstreamSettings>), CommandError> {
    let RoutingSection { mut upstreams, mut routes } = routing.unwrap_or_default();
    if let [only] = upstreams.as_slice()
        && routes.is_empty()
        && single.is_none()
    {
        let route = UpstreamRoute { host: None, prefix: "/".to_owned(), upstream: 0 };
        routes.push((route, only.name.clone()));
    }
    let names: Vec<String> = upstreams.iter().map(|named| named.name.clone()).collect();
    let index_of = |name: &String| names.iter().position(|known| known == name);
    let mut found: Vec<UpstreamRoute> = routes
        .into_iter()
        .filter_map(|(route, name)| Some(UpstreamRoute { upstream: index_of(&name)?, ..route }))
        .collect();
    if let Some(unused) =
        (0..names.len()).find(|at| found.iter().all(|route| route.upstream != *at))
    {
        return Err(CommandError::Usage(format!(
            "no route uses the upstream {}\n  write: routes: [{{ path: /, upstream: {} }}]",
            names[unused], names[unused]
        )));
    }
    if let Some(UpstreamUrl(address)) = single {
        found.push(UpstreamRoute { host: None, prefix: "/".to_owned(), upstream: upstreams.len() });
        upstreams.push(UpstreamSection::single_server(address));
    }
    let upstreams = upstreams.into_iter().map(UpstreamSection::check).collect::<Result<_, _>>()?;
    Ok((found, upstreams))
}

impl UpstreamSection {
    fn single_server(address: OutboundAddress) -> Self {
        Self {
            name: String::new(),
            servers: vec![(address, 1)],
            balance: Balance::default(),
            timeouts: UpstreamTimeouts::default(),
            host: HostHeader::default(),
            ca_file: None,
            health: None,
        }
    }

    fn check(self) -> Result<UpstreamSettings, CommandError> {
        let Self { servers, balance, timeouts, host, ca_file, health, .. } = self;
        let tls = servers.iter().any(|(address, _)| address.is_tls());
        let trust = match (&ca_file, tls) {
            (Some(path), _) => OutboundTls::from_pem(&read_file(path, "`ca_file`")?),
            (None, true) => {
                OutboundTls::from_certificates(rustls_native_certs::load_native_certs().certs)
            }
            (None, false) => OutboundTls::without_roots(),
        };
        let trust = trust.map_err(|error| {
            let source = ca_file
                .map_or("the operating system".to_owned(), |path| path.display().to_string());
            CommandError::Failed(format!("cannot use the CA certificates of {source}: {error}"))
        })?;
        Ok(UpstreamSettings { servers, balance, timeouts, tls: trust, host, health })
    }
}
