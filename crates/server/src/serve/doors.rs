//! Opening a door, serving at it, and closing it when all requests under way are answered.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use tidegate_core::store::Store;
use tidegate_edge::http::{self, Door};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::config::{DoorAt, Listen};
use crate::failure::Failure;
use crate::telemetry::Event;

/// Opens the HTTP door. One that was asked for must open where it was asked for; the default one
/// moves aside when its port is taken, because it is the only door there is.
///
/// # Errors
/// When there is no door to open or it cannot be opened.
pub(super) async fn open(at: DoorAt) -> Result<TcpListener, Failure> {
    match at {
        DoorAt::Asked(Listen::Off) | DoorAt::Default(Listen::Off) => Err(Failure::Usage(
            "every door is off, so there is nothing to serve\n  write: --http 127.0.0.1:8081"
                .to_owned(),
        )),
        DoorAt::Asked(Listen::At(addr)) => {
            TcpListener::bind(addr).await.map_err(|error| cannot_listen(addr, &error))
        }
        DoorAt::Default(Listen::At(wanted)) => match TcpListener::bind(wanted).await {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                let free = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
                let bound = TcpListener::bind(free).await;
                let listener = bound.map_err(|error| cannot_listen(free, &error))?;
                Event::DoorTaken { wanted, instead: listener.local_addr()? }.tell();
                Ok(listener)
            }
            bound => bound.map_err(|error| cannot_listen(wanted, &error)),
        },
    }
}

fn cannot_listen(addr: SocketAddr, error: &io::Error) -> Failure {
    let advice = match error.kind() {
        io::ErrorKind::AddrInUse => {
            "the port is taken\n  stop whoever has it, or choose another: --http 127.0.0.1:0"
                .to_owned()
        }
        io::ErrorKind::PermissionDenied => format!("{error}\n  choose a port from 1024 up"),
        _ => error.to_string(),
    };
    Failure::CouldNot(format!("cannot listen on {addr}: {advice}"))
}

/// A door at which requests are served.
#[derive(Debug)]
pub(super) struct OpenDoor {
    stop: oneshot::Sender<()>,
    serving: JoinHandle<()>,
}

impl OpenDoor {
    /// Serves on a task of its own.
    pub(super) fn serve<S: Store + 'static, L: Store + 'static>(
        listener: TcpListener,
        door: Arc<Door<S, L>>,
    ) -> Self {
        let (stop, stopped) = oneshot::channel();
        let serving = tokio::spawn(async move {
            let stopped = async {
                // That the sender is gone means the same.
                let _ = stopped.await;
            };
            http::serve(listener, door, stopped).await;
        });
        Self { stop, serving }
    }

    /// Waits for what should not happen: that the door closes by itself.
    pub(super) async fn ended(&mut self) -> Failure {
        let why = match (&mut self.serving).await {
            Ok(()) => "it stopped accepting".to_owned(),
            Err(error) => error.to_string(),
        };
        Failure::CouldNot(format!("the HTTP door closed by itself: {why}"))
    }

    /// Accepts nobody any more and waits until everybody inside is served, for as long as the
    /// door's settings say.
    pub(super) async fn close(self) {
        // The door may have ended by itself.
        let _ = self.stop.send(());
        let _ = self.serving.await;
    }
}
