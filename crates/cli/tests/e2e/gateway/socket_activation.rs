//! Started by systemd: with inherited sockets, and with notifications of readiness and shutdown.

use std::net::TcpListener;
use std::os::unix::net::UnixDatagram;

use command_fds::{CommandFdExt as _, FdMapping};

use crate::support::{
    RecordingUpstream, ServerProcess, TEST_TIMEOUT, TestFolder, tidegate_command,
};

#[test]
fn gateway_serves_on_inherited_sockets() {
    let upstream = RecordingUpstream::start();
    let [http, gateway] = [0, 1].map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
    let address = |socket: &TcpListener| socket.local_addr().unwrap().to_string();
    let (http_at, gateway_at) = (address(&http), address(&gateway));
    let mut command = tidegate_command();
    command.args(["serve", "--upstream", &upstream.url(), "--limit", "5/min by ip"]);
    command.env("LISTEN_FDS", "2").env("LISTEN_FDNAMES", "http:gateway");
    let sockets = [(3, http), (4, gateway)];
    let mappings =
        sockets.map(|(child_fd, socket)| FdMapping { parent_fd: socket.into(), child_fd });
    command.fd_mappings(mappings.into()).unwrap();
    let server = ServerProcess::spawn(command);
    assert_eq!((&server.address, &server.gateway), (&http_at, &gateway_at));
    assert_eq!(server.gateway_client().get("/").status, 200);
    assert_eq!(server.client().get("/readyz").status, 200);
    server.stop();
}

#[test]
fn systemd_is_notified_of_ready_and_stopping() {
    let upstream = RecordingUpstream::start();
    let folder = TestFolder::new();
    let path = folder.path("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    let next_message = || {
        let mut bytes = [0; 256];
        let length = socket.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    };
    let mut command = tidegate_command();
    command.args(["serve", "--http", "127.0.0.1:0", "--gateway", "127.0.0.1:0"]);
    command.args(["--upstream", &upstream.url(), "--limit", "5/min by ip"]);
    command.env("NOTIFY_SOCKET", &path);
    let server = ServerProcess::spawn(command);
    assert_eq!(next_message(), format!("READY=1\nMAINPID={}\n", server.pid()));
    let mut chain = crate::support::SuccessorChain::new(&server);
    chain.replace_process();
    let ready = format!("READY=1\nMAINPID={}\n", chain.pid);
    assert_eq!(next_message(), ready, "the successor is the main process");
    crate::support::successors::send_signal(chain.pid, "TERM");
    assert_eq!(next_message(), "STOPPING=1\n", "the predecessor sent no STOPPING");
}
