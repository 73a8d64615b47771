//! Opens listeners: on TCP ports, on Unix sockets, or from inherited sockets.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use tidegate_net::listen::BoundListener;
use tokio::net::TcpListener;

use super::inherited_sockets::InheritedSockets;
use super::listeners::ListenerKind;
use super::socket_file::{self, SocketFile, SocketFileError};
use crate::config::{ListenSetting, ListenSpec, SocketMode};
use crate::error::CommandError;

/// A listener that is bound but not served yet.
#[derive(Debug)]
pub(super) struct OpenedListener {
    pub(super) kind: ListenerKind,
    /// The socket file, if this process is responsible for removing it. Declared before the
    /// listener so that it is dropped first.
    pub(super) file: Option<SocketFile>,
    pub(super) listener: BoundListener,
}

/// Opens a listener; `None` if it is off. An inherited socket is used as it is. Otherwise the
/// listener opens exactly at the configured or default address, because clients would not find it
/// on another port.
///
/// # Errors
/// When the address cannot be bound.
pub(super) async fn open_listener(
    kind: ListenerKind,
    at: &ListenSetting,
    mode: SocketMode,
    inherited: &mut InheritedSockets,
) -> Result<Option<OpenedListener>, CommandError> {
    if *at.spec() == ListenSpec::Off {
        return Ok(None);
    }
    if let Some((listener, file)) = inherited.take_socket(kind)? {
        return Ok(Some(OpenedListener { kind, file, listener }));
    }
    let (file, listener) = match at {
        ListenSetting::Explicit(ListenSpec::Address(addr))
        | ListenSetting::Default(ListenSpec::Address(addr)) => {
            let bound = TcpListener::bind(addr).await;
            let explicit = matches!(at, ListenSetting::Explicit(_));
            (None, bound.map_err(|error| bind_error(kind, *addr, explicit, &error))?.into())
        }
        ListenSetting::Explicit(ListenSpec::PreferredPort(port))
        | ListenSetting::Default(ListenSpec::PreferredPort(port)) => {
            (None, bind_preferred(kind, *port).await?.into())
        }
        ListenSetting::Explicit(ListenSpec::Unix(path))
        | ListenSetting::Default(ListenSpec::Unix(path)) => {
            let bound = socket_file::bind_socket(path, mode).await;
            let (file, listener) = bound.map_err(|error| unix_socket_error(kind, path, &error))?;
            (Some(file), listener.into())
        }
        ListenSetting::Explicit(ListenSpec::Off) | ListenSetting::Default(ListenSpec::Off) => {
            return Ok(None);
        }
    };
    Ok(Some(OpenedListener { kind, file, listener }))
}

async fn bind_preferred(kind: ListenerKind, port: u16) -> Result<TcpListener, CommandError> {
    let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let bound = match TcpListener::bind(addr).await {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await
        }
        bound => bound,
    };
    bound.map_err(|error| bind_error(kind, addr, true, &error))
}

fn bind_error(
    kind: ListenerKind,
    addr: SocketAddr,
    explicit: bool,
    error: &io::Error,
) -> CommandError {
    let name = kind.name();
    let advice = match error.kind() {
        io::ErrorKind::AddrInUse if explicit => format!(
            "the port is taken\n  stop the process that uses it, or choose another: --{name} 127.0.0.1:0"
        ),
        io::ErrorKind::AddrInUse => format!(
            "the default port of the {name} listener is taken\n  stop the process that uses it, \
             move the listener with --{name} 127.0.0.1:0, or disable it with --{name} off"
        ),
        io::ErrorKind::PermissionDenied => format!("{error}\n  choose a port above 1023"),
        _ => error.to_string(),
    };
    CommandError::Failed(format!("cannot listen on {addr}: {advice}"))
}

fn unix_socket_error(kind: ListenerKind, path: &Path, error: &SocketFileError) -> CommandError {
    let (name, folder) = (kind.name(), socket_file::parent_folder(path).display());
    let advice = match error {
        SocketFileError::Taken => format!(
            "another process listens there\n  \
             stop it, or choose another file: --{name} unix:{folder}/{name}-2.sock"
        ),
        SocketFileError::NotSocket => format!(
            "the path exists and is not a socket, so it is not replaced\n  \
             remove it, or choose another: --{name} unix:{folder}/{name}-2.sock"
        ),
        SocketFileError::System(error) => match error.kind() {
            io::ErrorKind::NotFound => format!("{error}\n  create the folder: mkdir -p {folder}"),
            io::ErrorKind::PermissionDenied => {
                format!("{error}\n  choose a folder that this user can read and write")
            }
            _ => error.to_string(),
        },
    };
    CommandError::Failed(format!("cannot listen on unix:{}: {advice}", path.display()))
}
