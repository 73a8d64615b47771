//! A minimal HTTP/1.1 client for measuring latency: one connection, one request at a time. It
//! supports only responses with `Content-Length`.

#![expect(clippy::expect_used, reason = "a benchmark that cannot run should say why and stop")]

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// A server that takes longer than this has stalled, and the benchmark fails.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// A keep-alive connection.
#[derive(Debug)]
pub struct BenchConnection {
    tcp: TcpStream,
    request: String,
    response: Vec<u8>,
}

impl BenchConnection {
    /// Connects to the server.
    ///
    /// # Errors
    /// When the connection fails.
    pub fn open(address: SocketAddr) -> io::Result<Self> {
        let tcp = TcpStream::connect(address)?;
        tcp.set_nodelay(true)?;
        tcp.set_read_timeout(Some(READ_TIMEOUT))?;
        let request = format!("GET /api/things HTTP/1.1\r\nHost: {address}\r\n\r\n");
        Ok(Self { tcp, request, response: vec![0; 16 * 1024] })
    }

    /// Sends a request, waits for the whole response, and returns its status.
    ///
    /// # Errors
    /// When the connection breaks.
    ///
    /// # Panics
    /// When the response has no `Content-Length` or does not fit in 16 KiB.
    pub fn send_request(&mut self) -> io::Result<u16> {
        self.tcp.write_all(self.request.as_bytes())?;
        let mut read = 0;
        loop {
            match self.tcp.read(&mut self.response[read..])? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                more => read += more,
            }
            if let Some((status, length)) = parse_head(&self.response[..read])
                && read >= length
            {
                return Ok(status);
            }
        }
    }
}

/// The status of a response and its length including the head; `None` until the head is complete.
fn parse_head(response: &[u8]) -> Option<(u16, usize)> {
    let end = response.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let head = std::str::from_utf8(&response[..end]).expect("response head is UTF-8");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>())?.ok()
    });
    Some((status.expect("a status code"), end + length.expect("a Content-Length header")))
}
