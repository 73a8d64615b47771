//! Reports the service state to systemd (sd_notify), if NOTIFY_SOCKET is set.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// A service state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SystemdState {
    /// The listeners are open; this process is the main process of the service.
    Ready,
    /// The process is shutting down.
    Stopping,
}

/// Sends the state. A failure is only logged, since nothing depends on it.
pub(super) fn notify_systemd(state: SystemdState) {
    let Some(socket) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let name = socket.as_encoded_bytes();
    let address = match name.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&socket),
    };
    let text = match state {
        SystemdState::Ready => format!("READY=1\nMAINPID={}\n", std::process::id()),
        SystemdState::Stopping => "STOPPING=1\n".to_owned(),
    };
    let sent = address
        .and_then(|address| UnixDatagram::unbound()?.send_to_addr(text.as_bytes(), &address));
    if let Err(error) = sent {
        tracing::warn!(%error, "cannot notify systemd of the service state");
    }
}
