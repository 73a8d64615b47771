//! What `serve` says on stdout: a line for each open door, and what to try on the built-in example.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::output::{BOLD, DIM};

/// The greeting for an HTTP door at an address.
pub(super) fn text(http: SocketAddr, built_in: bool) -> String {
    let mut text = format!("listening http {http}\n");
    if built_in {
        let url = reachable(http);
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
