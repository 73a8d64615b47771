//! Tells systemd how we fare (sd_notify), if it asked.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// What there is to tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The doors are open; this process is the one that counts.
    Ready,
    /// On the way out.
    Stopping,
}

/// Tells it. Nobody depends on its being heard.
pub(super) fn tell(state: State) {
    let Some(socket) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let name = socket.as_encoded_bytes();
    let address = match name.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&socket),
    };
    let text = match state {
        State::Ready => format!("READY=1\nMAINPID={}\n", std::process::id()),
        State::Stopping => "STOPPING=1\n".to_owned(),
    };
    let told = address
        .and_then(|address| UnixDatagram::unbound()?.send_to_addr(text.as_bytes(), &address));
    if let Err(error) = told {
        tracing::warn!(%error, "systemd could not be told");
    }
}
