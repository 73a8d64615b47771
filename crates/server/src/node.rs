//! The name of this node in a fleet: its host name and process id.

use rustix::system::uname;

/// Returns the name, such as `web-1:4711`. In a container, the host name is that of the container.
pub(crate) fn name() -> String {
    format!("{}:{}", uname().nodename().to_string_lossy(), std::process::id())
}
