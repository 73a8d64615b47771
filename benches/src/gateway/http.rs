//! As much of HTTP/1.1 as it takes to ask an honest server and to time its answer: one connection, one
//! request after the other, answers with a length.

#![expect(clippy::expect_used, reason = "a benchmark that cannot run should say why and stop")]

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Nobody takes as long.
const PATIENCE: Duration = Duration::from_secs(10);

/// A connection that is kept.
#[derive(Debug)]
pub struct Connection {
    tcp: TcpStream,
    request: String,
    answer: Vec<u8>,
}

impl Connection {
    /// Connects.
    ///
    /// # Errors
    /// When nobody listens.
    pub fn open(address: SocketAddr) -> io::Result<Self> {
        let tcp = TcpStream::connect(address)?;
        tcp.set_nodelay(true)?;
        tcp.set_read_timeout(Some(PATIENCE))?;
        let request = format!("GET /api/things HTTP/1.1\r\nHost: {address}\r\n\r\n");
        Ok(Self { tcp, request, answer: vec![0; 16 * 1024] })
    }

    /// Asks, waits for the whole answer, and returns its status.
    ///
    /// # Errors
    /// When the connection breaks.
    ///
    /// # Panics
    /// When the answer is not one with a length that fits in 16 KiB.
    pub fn ask(&mut self) -> io::Result<u16> {
        self.tcp.write_all(self.request.as_bytes())?;
        let mut read = 0;
        loop {
            match self.tcp.read(&mut self.answer[read..])? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                more => read += more,
            }
            if let Some((status, length)) = head(&self.answer[..read])
                && read >= length
            {
                return Ok(status);
            }
        }
    }
}

/// The status of an answer and its length with its head, once the head is there.
fn head(answer: &[u8]) -> Option<(u16, usize)> {
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let head = std::str::from_utf8(&answer[..end]).expect("a head of plain text");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>())?.ok()
    });
    Some((status.expect("a status"), end + length.expect("a length")))
}
