//! What this node is called where there are others: its machine, and the process on it.

use rustix::system::uname;

/// The name, such as `web-1:4711`. In containers the machine is the container.
pub(crate) fn name() -> String {
    format!("{}:{}", uname().nodename().to_string_lossy(), std::process::id())
}
