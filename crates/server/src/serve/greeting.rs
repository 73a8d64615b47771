//! What `serve` says on stdout: a line for each open door, and what to try on the built-in example.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use tidegate_edge::listen::Place;

use super::doors::Kind;
use crate::output::{BOLD, DIM};

/// The greeting for doors at their addresses.
pub(super) fn text(open: &[(Kind, Place)], built_in: bool) -> String {
    let mut text = String::new();
    for (kind, at) in open {
        text.push_str(&format!("listening {} {at}\n", kind.name()));
    }
    let http = open.iter().find(|(kind, _)| *kind == Kind::Http);
    if let Some((_, Place::Tcp(http))) = http
        && built_in
    {
        let url = reachable(*http);
        text.push_str(&format!(
            "\n{BOLD}No rules were named, so a built-in example is in force. Try it:{BOLD:#}\n\n  \
             curl -i http://{url}/v1/check -d '{{\"facts\":{{\"ip\":\"203.0.113.7\",\
             \"method\":\"POST\",\"path\":\"/api/orders\",\"api_key\":\"demo\"}}}}'\n\n\
             {DIM}Twenty at once pass, then ten a second. Why: tidegate explain \
             --server http://{url} api_key=demo method=POST path=/api/orders{DIM:#}\n"
        ));
    }
    text
}

/// The address under which this machine reaches a door that is open on all of its addresses.
fn reachable(mut at: SocketAddr) -> SocketAddr {
    if at.ip().is_unspecified() {
        match at {
            SocketAddr::V4(_) => at.set_ip(Ipv4Addr::LOCALHOST.into()),
            SocketAddr::V6(_) => at.set_ip(Ipv6Addr::LOCALHOST.into()),
        }
    }
    at
}
