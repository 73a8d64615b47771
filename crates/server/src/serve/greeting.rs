//! Where the doors are: told on stdout, with a line for each and what to try on the built-in example, or to
//! whoever runs the server within this process.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use tidegate_edge::listen::Place;

use tokio::sync::oneshot::Sender;

use super::doors::Kind;
use crate::output::{self, BOLD, DIM};

/// Somebody in this process who wants to know where the doors are.
pub(crate) type Asker = Sender<Addresses>;

/// Where the open doors are.
#[derive(Debug)]
pub(crate) struct Addresses(Vec<(Kind, Place)>);

impl Addresses {
    pub(super) const fn new(open: Vec<(Kind, Place)>) -> Self {
        Self(open)
    }

    /// Where the door of this name is, if it is open.
    pub(crate) fn of(&self, door: &str) -> Option<&Place> {
        self.0.iter().find(|(kind, _)| kind.name() == door).map(|(_, at)| at)
    }

    /// Tells who asked, or everybody. Whoever started us may not listen; the doors are open all the same.
    pub(super) fn tell(self, built_in: bool, asker: Option<Asker>) {
        match asker {
            Some(asker) => drop(asker.send(self)),
            None => drop(output::text(&text(&self.0, built_in))),
        }
    }
}

fn text(open: &[(Kind, Place)], built_in: bool) -> String {
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
