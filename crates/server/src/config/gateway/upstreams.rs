//! What is behind the gateway: upstreams by name, and the routes to them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tidegate_core::time::Micros;
use tidegate_edge::gateway::{
    Address, Balance, Health, HostHeader, Route, Timeouts, Trust, UpstreamSettings,
};
use tidegate_rules::decode::{Field, Fields};
use tidegate_rules::problem::Remark;
use tidegate_rules::yaml::Value;

use super::super::read_file;
use super::super::section::{parsed, path};
use super::super::value::UpstreamAt;
use crate::failure::Failure;

const BALANCES: [(&str, Balance); 2] =
    [("least_loaded", Balance::LeastLoaded), ("weighted", Balance::Weighted)];
const HOSTS: [(&str, HostHeader); 2] =
    [("client", HostHeader::Client), ("server", HostHeader::Server)];

/// The most that a server may weigh, and the most answers in a row that are waited for.
const MAX_WEIGHT: u64 = 1_000;
const MAX_IN_A_ROW: u64 = 100;

/// Upstreams and routes, as typed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Behind {
    upstreams: Vec<Named>,
    /// With the name of the upstream, whose place is found later.
    routes: Vec<(Route, String)>,
}

/// An upstream as typed.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Named {
    name: String,
    servers: Vec<(Address, u32)>,
    balance: Balance,
    timeouts: Timeouts,
    host: HostHeader,
    ca_file: Option<PathBuf>,
    health: Option<Health>,
}

impl Behind {
    pub(super) fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let upstreams = fields.take("upstreams");
        let routes = fields.take("routes");
        if upstreams.is_none() && routes.is_none() {
            return None;
        }
        let named = upstreams.as_ref().and_then(Field::fields);
        let named: Vec<_> = named.iter().flat_map(Fields::all).collect();
        let upstreams: Vec<Named> =
            named.iter().filter_map(|(name, _, field)| read_upstream(name, field)).collect();
        let routes = routes.and_then(|field| field.list()).unwrap_or_default();
        let routes: Vec<(Route, String)> =
            routes.iter().filter_map(|field| read_route(field, &upstreams)).collect();
        // One alone needs no route.
        if named.len() > 1 || !routes.is_empty() {
            named.iter().for_each(|(name, _, field)| refuse_unused(name, field, &routes));
        }
        Some(Self { upstreams, routes })
    }

    pub(super) fn beside(mut self, folder: &Path) -> Self {
        for upstream in &mut self.upstreams {
            upstream.ca_file = upstream.ca_file.take().map(|path| folder.join(path));
        }
        self
    }
}

fn read_upstream(name: &str, field: &Field<'_>) -> Option<Named> {
    let mut fields = field.fields()?;
    let servers = fields.require("servers", "`servers: [http://10.0.0.1:3000]`");
    let list = servers.map(|field| field.one_or_more()).unwrap_or_default();
    let servers = list.iter().filter_map(read_server).collect();
    let usual = Timeouts::default();
    let mut time = |name, usual: Duration| {
        fields.take(name).and_then(|field| field.duration()).map_or(usual, Duration::from)
    };
    let timeouts = Timeouts {
        connect: time("connect_timeout", usual.connect),
        response: time("response_timeout", usual.response),
        idle: time("idle_timeout", usual.idle),
        keep: time("keep_connections", usual.keep),
    };
    let balance = fields.take("balance").and_then(|field| field.choice(&BALANCES));
    let host = fields.take("host").and_then(|field| field.choice(&HOSTS));
    let ca_file = fields.take("ca_file").and_then(|field| path(&field));
    let health = fields.take("health").and_then(|field| read_health(&field));
    fields.finish();
    Some(Named {
        name: name.to_owned(),
        servers,
        balance: balance.unwrap_or_default(),
        timeouts,
        host: host.unwrap_or_default(),
        ca_file,
        health,
    })
}

/// An address alone, or with what it weighs.
fn read_server(field: &Field<'_>) -> Option<(Address, u32)> {
    let address = |field: &Field<'_>| parsed::<UpstreamAt>(field).map(|at| at.0);
    if matches!(field.node().value, Value::Scalar { .. }) {
        return Some((address(field)?, 1));
    }
    let mut fields = field.fields()?;
    let url = fields.require("url", "`url: http://10.0.0.1:3000`");
    let weight = fields.take("weight").map(|field| field.integer(1, MAX_WEIGHT));
    fields.finish();
    let weight = weight.unwrap_or(Some(1)).and_then(|weight| u32::try_from(weight).ok());
    Some((url.as_ref().and_then(address)?, weight?))
}

fn read_health(field: &Field<'_>) -> Option<Health> {
    let mut fields = field.fields()?;
    let path = fields.require("path", "`path: /healthz`");
    let path = path.and_then(|field| path_of(&field));
    let mut time = |name, usual| {
        let typed = fields.take(name).and_then(|field| field.duration());
        Duration::from(typed.unwrap_or(usual))
    };
    let interval = time("interval", Micros::from_secs(5));
    let timeout = time("timeout", Micros::from_secs(2));
    let mut count = |name, usual| {
        let typed = fields.take(name).and_then(|field| field.integer(1, MAX_IN_A_ROW));
        typed.and_then(|count| u32::try_from(count).ok()).unwrap_or(usual)
    };
    let (unwell_after, well_after) = (count("unwell_after", 3), count("well_after", 2));
    fields.finish();
    Some(Health { path: path?, interval, timeout, unwell_after, well_after })
}

fn read_route(field: &Field<'_>, upstreams: &[Named]) -> Option<(Route, String)> {
    let mut fields = field.fields()?;
    let host = fields.take("host").and_then(|field| field.word().map(str::to_owned));
    let prefix = fields.take("path").map(|field| path_of(&field));
    let upstream = fields.require("upstream", "`upstream:` and the name of one");
    fields.finish();
    let upstream = upstream?;
    let name = upstream.word()?;
    if !upstreams.iter().any(|known| known.name == name) {
        let known: Vec<&str> = upstreams.iter().map(|known| known.name.as_str()).collect();
        let remark = Remark::new("no upstream has this name").found(name);
        upstream.refuse(remark.write(match known.as_slice() {
            [] => "one under `upstreams:` first".to_owned(),
            known => format!("one of {}", known.join(", ")),
        }));
        return None;
    }
    let prefix = prefix.unwrap_or_else(|| Some("/".to_owned()))?;
    Some((Route { host, prefix, upstream: 0 }, name.to_owned()))
}

fn refuse_unused(name: &str, field: &Field<'_>, routes: &[(Route, String)]) {
    if !routes.iter().any(|(_, upstream)| upstream == name) {
        let remark = Remark::new("no route leads to this upstream").found(name);
        field.refuse(remark.write(format!("routes: [{{ path: /, upstream: {name} }}]")));
    }
}

/// A path as requests have it after they were vetted.
fn path_of(field: &Field<'_>) -> Option<String> {
    let text = field.word()?;
    match tidegate_edge::path::canonical(text) {
        Ok(canonical) if canonical == text => Some(text.to_owned()),
        Ok(canonical) => {
            let remark = Remark::new("requests never have a path that is spelt so").found(text);
            field.refuse(remark.write(format!("`{canonical}`")));
            None
        }
        Err(error) => {
            field.refuse(Remark::new(error.to_string()).found(text).write("such as `/api`"));
            None
        }
    }
}

/// Puts it together: the one upstream of the command line is for whatever no route is for.
///
/// # Errors
/// When a file of certificates cannot be used, or it is not clear where requests go.
pub(super) fn check(
    one: Option<UpstreamAt>,
    behind: Option<Behind>,
) -> Result<(Vec<Route>, Vec<UpstreamSettings>), Failure> {
    let Behind { mut upstreams, mut routes } = behind.unwrap_or_default();
    if let [only] = upstreams.as_slice()
        && routes.is_empty()
        && one.is_none()
    {
        let route = Route { host: None, prefix: "/".to_owned(), upstream: 0 };
        routes.push((route, only.name.clone()));
    }
    let names: Vec<String> = upstreams.iter().map(|named| named.name.clone()).collect();
    let place = |name: &String| names.iter().position(|known| known == name);
    let mut found: Vec<Route> = routes
        .into_iter()
        .filter_map(|(route, name)| Some(Route { upstream: place(&name)?, ..route }))
        .collect();
    if let Some(unused) =
        (0..names.len()).find(|at| found.iter().all(|route| route.upstream != *at))
    {
        return Err(Failure::Usage(format!(
            "no route leads to the upstream {}\n  write: routes: [{{ path: /, upstream: {} }}]",
            names[unused], names[unused]
        )));
    }
    if let Some(UpstreamAt(address)) = one {
        found.push(Route { host: None, prefix: "/".to_owned(), upstream: upstreams.len() });
        upstreams.push(Named::one(address));
    }
    let upstreams = upstreams.into_iter().map(Named::check).collect::<Result<_, _>>()?;
    Ok((found, upstreams))
}

impl Named {
    fn one(address: Address) -> Self {
        Self {
            name: String::new(),
            servers: vec![(address, 1)],
            balance: Balance::default(),
            timeouts: Timeouts::default(),
            host: HostHeader::default(),
            ca_file: None,
            health: None,
        }
    }

    fn check(self) -> Result<UpstreamSettings, Failure> {
        let Self { servers, balance, timeouts, host, ca_file, health, .. } = self;
        let tls = servers.iter().any(|(address, _)| address.is_tls());
        let trust = match (&ca_file, tls) {
            (Some(path), _) => Trust::in_pem(&read_file(path, "`ca_file`")?),
            (None, true) => Trust::in_list(rustls_native_certs::load_native_certs().certs),
            (None, false) => Trust::nobody(),
        };
        let trust = trust.map_err(|error| {
            let whose =
                ca_file.map_or("this machine".to_owned(), |path| path.display().to_string());
            Failure::CouldNot(format!("certificate authorities of {whose}: {error}"))
        })?;
        Ok(UpstreamSettings { servers, balance, timeouts, trust, host, health })
    }
}
