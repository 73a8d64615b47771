//! Announces the listener addresses: on stdout, with a command to try for the built-in example, or
//! to the caller that runs the server inside its own process.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use tidegate_net::listen::ListenAddr;

use tokio::sync::oneshot::Sender;

use super::listeners::ListenerKind;
use crate::output::{self, BOLD, DIM};

/// Sends the listener addresses to a caller in this process.
pub type AddressSender = Sender<ListenerAddresses>;

/// Addresses of the open listeners.
#[derive(Debug)]
pub struct ListenerAddresses(Vec<(ListenerKind, ListenAddr)>);

impl ListenerAddresses {
    pub(super) const fn new(open: Vec<(ListenerKind, ListenAddr)>) -> Self {
        Self(open)
    }

    /// The address of the listener with this name, if it is open.
    pub fn get(&self, name: &str) -> Option<&ListenAddr> {
        self.0.iter().find(|(kind, _)| kind.name() == name).map(|(_, at)| at)
    }

    /// Sends the addresses to the caller, or prints them. Failures are ignored: the listeners work
    /// without an announcement.
    pub(super) fn announce(self, built_in: bool, sender: Option<AddressSender>) {
        match sender {
            Some(sender) => drop(sender.send(self)),
            None => drop(output::print_text(&banner_text(&self.0, built_in))),
        }
    }
}

fn banner_text(open: &[(ListenerKind, ListenAddr)], built_in: bool) -> String {
    let mut text = String::new();
    for (kind, at) in open {
        text.push_str(&format!("listening {} {at}\n", kind.name()));
    }
    let http = open.iter().find(|(kind, _)| *kind == ListenerKind::Http);
    if let Some((_, ListenAddr::Tcp(http))) = http
        && built_in
    {
        let url = reachable_address(*http);
        text.push_str(&format!(
            "\n{BOLD}No rules are configured, so a built-in example is active. Try it:{BOLD:#}\n\n  \
             curl -i http://{url}/v1/check -d '{{\"facts\":{{\"ip\":\"203.0.113.7\",\
             \"method\":\"POST\",\"path\":\"/api/orders\",\"api_key\":\"demo\"}}}}'\n\n\
             {DIM}It allows bursts of 20, then 10 requests per second. To see why: tidegate explain \
             --server http://{url} api_key=demo method=POST path=/api/orders{DIM:#}\n"
        ));
    }
    text
}

/// Replaces an unspecified address (`0.0.0.0` or `[::]`) by the loopback address.
fn reachable_address(mut at: SocketAddr) -> SocketAddr {
    if at.ip().is_unspecified() {
        match at {
            SocketAddr::V4(_) => at.set_ip(Ipv4Addr::LOCALHOST.into()),
            SocketAddr::V6(_) => at.set_ip(Ipv6Addr::LOCALHOST.into()),
        }
    }
    at
}
