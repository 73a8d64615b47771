//! An upstream whose responses a test controls, and which records the requests it receives.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

use super::TEST_TIMEOUT;

/// Writes the response to a request; the connection then stays open for the next request.
pub type ReplyHandler = Box<dyn Fn(&ReceivedRequest, &mut TcpStream) + Send + Sync>;

/// A request as the upstream received it.
#[derive(Clone, Debug)]
pub struct ReceivedRequest {
    pub received_at: Instant,
    pub head: String,
    pub body: Vec<u8>,
}

impl ReceivedRequest {
    /// The value of a header, byte for byte; fails if the header occurs twice.
    #[track_caller]
    pub fn header(&self, name: &str) -> Option<&str> {
        let fields = self.head.lines().filter_map(|line| line.split_once(": "));
        let mut values = fields.filter(|(field, _)| field.eq_ignore_ascii_case(name));
        let value = values.next().map(|(_, value)| value);
        assert_eq!(values.next(), None, "{}", self.head);
        value
    }
}

/// An upstream with one thread per connection.
pub struct RecordingUpstream {
    pub address: SocketAddr,
    received: Receiver<ReceivedRequest>,
}

impl RecordingUpstream {
    /// Answers each request at once.
    pub fn start() -> Self {
        Self::start_replying(|_, stream| reply_ok(stream, "ok"))
    }

    /// Answers each request with `reply`.
    pub fn start_replying(
        reply: impl Fn(&ReceivedRequest, &mut TcpStream) + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, received) = channel();
        let reply: Arc<ReplyHandler> = Arc::new(Box::new(reply));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (reply, sender) = (Arc::clone(&reply), sender.clone());
                thread::spawn(move || serve_connection(stream, &reply, &sender));
            }
        });
        Self { address, received }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Waits for the next request; fails after a timeout.
    #[track_caller]
    pub fn next_request(&self) -> ReceivedRequest {
        self.received.recv_timeout(TEST_TIMEOUT).unwrap()
    }

    /// All requests received that no earlier call returned.
    pub fn received_requests(&self) -> Vec<ReceivedRequest> {
        self.received.try_iter().collect()
    }
}

/// Replies with 200 and a text body.
pub fn reply_ok(stream: &mut TcpStream, body: &str) {
    let length = body.len();
    // One write: Nagle's algorithm delays consecutive small ones.
    let response = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{body}");
    let _ = stream.write_all(response.as_bytes());
}

/// A channel that holds a reply back: the reply handler waits for a message from the test.
pub fn reply_gate() -> (Sender<()>, Mutex<Receiver<()>>) {
    let (open, closed) = channel();
    (open, Mutex::new(closed))
}

#[expect(clippy::disallowed_methods, reason = "tests measure when a request arrives")]
fn serve_connection(stream: TcpStream, reply: &ReplyHandler, received: &Sender<ReceivedRequest>) {
    let mut writer = stream.try_clone().unwrap();
    let mut reader = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if !reader.read_line(&mut head).is_ok_and(|read| read > 0) {
                return;
            }
        }
        let at = Instant::now();
        let field = |name: &str| {
            let value = |line: &str| line.to_lowercase().strip_prefix(name).map(str::to_owned);
            head.lines().find_map(value)
        };
        let length = field("content-length: ").map_or(0, |length| length.trim().parse().unwrap());
        let mut body = vec![0; length];
        if reader.read_exact(&mut body).is_err() {
            return;
        }
        let request = ReceivedRequest { received_at: at, head, body };
        let _ = received.send(request.clone());
        reply(&request, &mut writer);
    }
}
