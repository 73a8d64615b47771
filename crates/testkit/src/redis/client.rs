//! A minimal blocking RESP2 client: one command out, one reply in. It shares no code with the
//! client under test.

#![expect(clippy::expect_used, reason = "an unexpected kind of reply fails the test")]

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// A reply of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RedisReply {
    /// A status, such as `OK`.
    Simple(String),
    /// An error, beginning with its code.
    Error(String),
    /// An integer.
    Integer(i64),
    /// Bytes.
    Bulk(Vec<u8>),
    /// A null.
    Nil,
    /// An array.
    Array(Vec<RedisReply>),
}

impl RedisReply {
    /// The text of a status, integer or bulk reply.
    ///
    /// # Panics
    /// If it is another kind of reply.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::Simple(text) => text.clone(),
            Self::Integer(number) => number.to_string(),
            Self::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            other => panic!("expected a text reply, got {other:?}"),
        }
    }

    /// The integer, also if it was sent as text (as by `TIME`).
    ///
    /// # Panics
    /// If it is not a number.
    #[must_use]
    pub fn integer(&self) -> i64 {
        self.text().parse().expect("a number")
    }

    /// The items of an array.
    ///
    /// # Panics
    /// If it is another kind of reply.
    #[must_use]
    pub fn items(&self) -> &[Self] {
        match self {
            Self::Array(items) => items,
            other => panic!("expected an array, got {other:?}"),
        }
    }

    /// The error, if it is one.
    #[must_use]
    pub fn error(&self) -> Option<&str> {
        match self {
            Self::Error(text) => Some(text),
            _ => None,
        }
    }

    /// The value of `name` in lines of `name:value`, the format of `INFO` and `CLUSTER INFO`.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<String> {
        let text = self.text();
        let mut lines = text.lines().filter_map(|line| line.split_once(':'));
        lines.find(|(found, _)| *found == name).map(|(_, value)| value.to_owned())
    }
}

/// A connection to a server.
pub struct RedisClient {
    stream: BufReader<Box<dyn ClientStream>>,
}

impl RedisClient {
    /// Timeout for connecting and for each part of a reply.
    pub const TIMEOUT: Duration = Duration::from_secs(5);

    /// Connects over TCP.
    ///
    /// # Errors
    /// If the server does not accept within [`RedisClient::TIMEOUT`].
    pub fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, Self::TIMEOUT)?;
        stream.set_nodelay(true)?;
        Self::from_stream(Box::new(stream))
    }

    /// Connects over a Unix socket.
    ///
    /// # Errors
    /// If the server does not accept.
    pub fn connect_unix(socket: &Path) -> io::Result<Self> {
        Self::from_stream(Box::new(UnixStream::connect(socket)?))
    }

    fn from_stream(stream: Box<dyn ClientStream>) -> io::Result<Self> {
        let mut client = Self { stream: BufReader::new(stream) };
        client.set_timeout(Self::TIMEOUT)?;
        Ok(client)
    }

    /// Sets the timeout for each part of a reply.
    ///
    /// # Errors
    /// If the timeout is zero.
    pub fn set_timeout(&mut self, timeout: Duration) -> io::Result<()> {
        self.stream.get_mut().set_timeouts(timeout)
    }

    /// Sends one command and waits for its reply. An error reply is returned as a reply. After an
    /// `Err` the connection is out of sync and must not be used.
    ///
    /// # Errors
    /// If the connection ends, or the reply is not RESP2 or does not arrive in time.
    pub fn command(&mut self, words: &[impl AsRef<[u8]>]) -> io::Result<RedisReply> {
        self.send(words)?;
        self.receive()
    }

    /// Sends one command without waiting for the reply.
    ///
    /// # Errors
    /// If the connection has ended.
    pub fn send(&mut self, words: &[impl AsRef<[u8]>]) -> io::Result<()> {
        let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
        for word in words.iter().map(AsRef::as_ref) {
            bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            bytes.extend_from_slice(word);
            bytes.extend_from_slice(b"\r\n");
        }
        self.stream.get_mut().write_all(&bytes)
    }

    /// Waits for one reply.
    ///
    /// # Errors
    /// As [`RedisClient::command`].
    pub fn receive(&mut self) -> io::Result<RedisReply> {
        let line = self.receive_line()?;
        let (kind, rest) = line.split_at_checked(1).ok_or_else(|| malformed(&line))?;
        let number = || rest.parse::<i64>().map_err(|_| malformed(&line));
        match kind {
            "+" => Ok(RedisReply::Simple(rest.to_owned())),
            "-" => Ok(RedisReply::Error(rest.to_owned())),
            ":" => Ok(RedisReply::Integer(number()?)),
            "$" | "*" if number()? == -1 => Ok(RedisReply::Nil),
            "$" => self.receive_bulk(usize::try_from(number()?).map_err(|_| malformed(&line))?),
            "*" => (0..number()?)
                .map(|_| self.receive())
                .collect::<Result<_, _>>()
                .map(RedisReply::Array),
            _ => Err(malformed(&line)),
        }
    }

    fn receive_bulk(&mut self, length: usize) -> io::Result<RedisReply> {
        let mut bytes = vec![0; length + 2];
        self.stream.read_exact(&mut bytes)?;
        bytes.truncate(length);
        Ok(RedisReply::Bulk(bytes))
    }

    fn receive_line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        match line.strip_suffix("\r\n") {
            Some(line) => Ok(line.to_owned()),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

fn malformed(line: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("not RESP2: {line:?}"))
}

/// What TCP and Unix streams have in common.
trait ClientStream: Read + Write + Send {
    fn set_timeouts(&self, timeout: Duration) -> io::Result<()>;
}

impl ClientStream for TcpStream {
    fn set_timeouts(&self, timeout: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(timeout))?;
        self.set_write_timeout(Some(timeout))
    }
}

impl ClientStream for UnixStream {
    fn set_timeouts(&self, timeout: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(timeout))?;
        self.set_write_timeout(Some(timeout))
    }
}
