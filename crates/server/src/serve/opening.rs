//! Opening doors: at ports, in files, or as somebody has opened them already.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use tidegate_edge::listen::Listener;
use tokio::net::TcpListener;

use super::doors::Kind;
use super::inherited::Inherited;
use super::socket_file::{self, Denied, SocketFile};
use crate::config::{DoorAt, Listen, SocketMode};
use crate::failure::Failure;

/// A door that is open and not served yet.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) kind: Kind,
    /// The file that it is in, if it is for us to remove it one day. Before the listener, so that it goes
    /// first.
    pub(super) file: Option<SocketFile>,
    pub(super) listener: Listener,
}

/// Opens a listener; none if it is off. One that is open already is taken as it is. Clients would not
/// find one that moved to another port, so it opens where it was asked for or where it is by default.
///
/// # Errors
/// When it cannot be opened.
pub(super) async fn open(
    kind: Kind,
    at: &DoorAt,
    mode: SocketMode,
    inherited: &mut Inherited,
) -> Result<Option<Opened>, Failure> {
    if *at.listen() == Listen::Off {
        return Ok(None);
    }
    if let Some((listener, file)) = inherited.socket(kind)? {
        return Ok(Some(Opened { kind, file, listener }));
    }
    let (file, listener) = match at {
        DoorAt::Asked(Listen::At(addr)) | DoorAt::Default(Listen::At(addr)) => {
            let bound = TcpListener::bind(addr).await;
            let asked = matches!(at, DoorAt::Asked(_));
            (None, bound.map_err(|error| cannot_listen(kind, *addr, asked, &error))?.into())
        }
        DoorAt::Asked(Listen::Preferred(port)) | DoorAt::Default(Listen::Preferred(port)) => {
            (None, bind_preferred(kind, *port).await?.into())
        }
        DoorAt::Asked(Listen::Unix(path)) | DoorAt::Default(Listen::Unix(path)) => {
            let bound = socket_file::listen(path, mode).await;
            let (file, listener) = bound.map_err(|denied| no_socket(kind, path, &denied))?;
            (Some(file), listener.into())
        }
        DoorAt::Asked(Listen::Off) | DoorAt::Default(Listen::Off) => return Ok(None),
    };
    Ok(Some(Opened { kind, file, listener }))
}

async fn bind_preferred(kind: Kind, port: u16) -> Result<TcpListener, Failure> {
    let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let bound = match TcpListener::bind(addr).await {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await
        }
        bound => bound,
    };
    bound.map_err(|error| cannot_listen(kind, addr, true, &error))
}

fn cannot_listen(kind: Kind, addr: SocketAddr, asked: bool, error: &io::Error) -> Failure {
    let name = kind.name();
    let advice = match error.kind() {
        io::ErrorKind::AddrInUse if asked => format!(
            "the port is taken\n  stop the process that has it, or choose another: --{name} 127.0.0.1:0"
        ),
        io::ErrorKind::AddrInUse => format!(
            "the default port of the {name} listener is taken\n  stop the process that has it, move \
             the listener with --{name} 127.0.0.1:0, or close it with --{name} off"
        ),
        io::ErrorKind::PermissionDenied => format!("{error}\n  choose a port from 1024 up"),
        _ => error.to_string(),
    };
    Failure::CouldNot(format!("cannot listen on {addr}: {advice}"))
}

fn no_socket(kind: Kind, path: &Path, denied: &Denied) -> Failure {
    let (door, folder) = (kind.name(), socket_file::folder(path).display());
    let advice = match denied {
        Denied::Taken => format!(
            "another process listens there\n  \
             stop it, or choose another file: --{door} unix:{folder}/{door}-2.sock"
        ),
        Denied::NoSocket => format!(
            "there is a file that is no socket, so it stays\n  \
             remove it, or choose another: --{door} unix:{folder}/{door}-2.sock"
        ),
        Denied::System(error) => match error.kind() {
            io::ErrorKind::NotFound => format!("{error}\n  make its folder: mkdir -p {folder}"),
            io::ErrorKind::PermissionDenied => {
                format!("{error}\n  choose a folder that this user may read and write")
            }
            _ => error.to_string(),
        },
    };
    Failure::CouldNot(format!("cannot listen on unix:{}: {advice}", path.display()))
}
