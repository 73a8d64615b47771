//! Raises the file descriptor limit and derives connection limits from it.

use rustix::process::{Resource, getrlimit, setrlimit};

use super::listeners::ListenerKind;
use crate::telemetry::ServerEvent;

/// Log a warning if a listener gets fewer connections than this.
const LOW_CONNECTION_LIMIT: usize = 1_000;

/// The number of file descriptors to distribute; `None` if unlimited.
#[derive(Clone, Copy, Debug)]
pub(super) struct FdLimit(Option<u64>);

impl FdLimit {
    /// Raises the soft limit to the hard limit. The usual soft limit of 1024 exists for programs
    /// that call `select` and is too low for a gateway.
    pub(super) fn raise() -> Self {
        let mut limit = getrlimit(Resource::Nofile);
        if limit.current != limit.maximum {
            limit.current = limit.maximum;
            // If raising fails, the current limit still applies.
            let _ = setrlimit(Resource::Nofile, limit);
        }
        Self(getrlimit(Resource::Nofile).current)
    }

    /// Returns how many connections a listener may have, at most `wanted`. The gateway gets 5/16,
    /// because each of its connections needs a second descriptor to the upstream. HTTP and RESP get
    /// 1/8 each. gRPC gets 1/16, because its callers are proxies with few connections. The rest is
    /// for the admin API and everything else.
    pub(super) fn max_connections(self, kind: ListenerKind, wanted: usize) -> usize {
        let Some(limit) = self.0 else { return wanted };
        let share = match kind {
            ListenerKind::Gateway => limit / 16 * 5,
            ListenerKind::Http | ListenerKind::Resp => limit / 8,
            ListenerKind::Grpc => limit / 16,
            // The admin API has few and short-lived connections.
            ListenerKind::Admin => return wanted,
        };
        let share = usize::try_from(share).unwrap_or(usize::MAX).max(1);
        if share < wanted && share < LOW_CONNECTION_LIMIT {
            ServerEvent::FewDescriptors { api: kind.name(), limit, connections: share }.log();
        }
        share.min(wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_limits_fit_fd_limit() {
        let few = FdLimit(Some(1024));
        assert_eq!(few.max_connections(ListenerKind::Gateway, 10_000), 320);
        assert_eq!(few.max_connections(ListenerKind::Http, 10_000), 128);
        assert_eq!(few.max_connections(ListenerKind::Resp, 10_000), 128);
        assert_eq!(few.max_connections(ListenerKind::Grpc, 10_000), 64);
        assert_eq!(few.max_connections(ListenerKind::Http, 100), 100);
        assert_eq!(FdLimit(Some(0)).max_connections(ListenerKind::Http, 100), 1);
        for many in [FdLimit(Some(1 << 20)), FdLimit(None)] {
            assert_eq!(many.max_connections(ListenerKind::Gateway, 10_000), 10_000);
        }
    }
}
