//! File descriptors: as many as the system gives, and no more connections than they suffice for.

use rustix::process::{Resource, getrlimit, setrlimit};

use super::doors::Kind;
use crate::telemetry::Event;

/// Fewer connections than this are worth a word.
const FEW: usize = 1_000;

/// How many descriptors there are to share out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Descriptors(Option<u64>);

impl Descriptors {
    /// Asks for as many as this process may have: the usual 1024 are for programs that call
    /// `select`, and a gateway runs out of them early.
    pub(super) fn raise() -> Self {
        let mut limit = getrlimit(Resource::Nofile);
        if limit.current != limit.maximum {
            limit.current = limit.maximum;
            // Where that is forbidden, what there was is there still.
            let _ = setrlimit(Resource::Nofile, limit);
        }
        Self(getrlimit(Resource::Nofile).current)
    }

    /// As many connections as a door may have of those that it wants. One through the gateway takes
    /// a second descriptor to the upstream; an eighth is for the HTTP and RESP doors each, a sixteenth
    /// for the gRPC door, whose callers are proxies with few connections, and for the admin door with the rest.
    pub(super) fn connections(self, kind: Kind, wanted: usize) -> usize {
        let Some(limit) = self.0 else { return wanted };
        let share = match kind {
            Kind::Gateway => limit / 16 * 5,
            Kind::Http | Kind::Resp => limit / 8,
            Kind::Grpc => limit / 16,
            // Few ask there, and nobody waits for long.
            Kind::Admin => return wanted,
        };
        let share = usize::try_from(share).unwrap_or(usize::MAX).max(1);
        if share < wanted && share < FEW {
            Event::FewDescriptors { door: kind.name(), limit, connections: share }.tell();
        }
        share.min(wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doors_have_no_more_connections_than_there_are_descriptors_for() {
        let few = Descriptors(Some(1024));
        assert_eq!(few.connections(Kind::Gateway, 10_000), 320);
        assert_eq!(few.connections(Kind::Http, 10_000), 128);
        assert_eq!(few.connections(Kind::Resp, 10_000), 128);
        assert_eq!(few.connections(Kind::Grpc, 10_000), 64);
        assert_eq!(few.connections(Kind::Http, 100), 100);
        assert_eq!(Descriptors(Some(0)).connections(Kind::Http, 100), 1);
        for many in [Descriptors(Some(1 << 20)), Descriptors(None)] {
            assert_eq!(many.connections(Kind::Gateway, 10_000), 10_000);
        }
    }
}
