//! An HTTP/1.1 client on one persistent connection, which sends bytes unchanged.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};

use rustix::net::{AddressFamily, SocketType};
use serde_json::{Value, json};

/// A persistent connection to a server.
pub struct HttpTestClient {
    stream: BufReader<TcpStream>,
    address: String,
}

#[derive(Debug)]
pub struct HttpTestResponse {
    pub status: u16,
    pub head: String,
    /// A JSON string if the body is not valid JSON.
    pub body: Value,
}

impl HttpTestClient {
    pub fn connect(address: &str) -> Self {
        Self::try_connect(address).unwrap()
    }

    /// Like `connect`, for a server that may be down.
    pub fn try_connect(address: &str) -> io::Result<Self> {
        Self::from_stream(TcpStream::connect(address)?, address)
    }

    /// Connects from another address of this machine, such as 127.0.1.1.
    pub fn connect_from(source: IpAddr, address: &str) -> Self {
        let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        rustix::net::bind(&socket, &SocketAddr::new(source, 0)).unwrap();
        rustix::net::connect(&socket, &address.parse::<SocketAddr>().unwrap()).unwrap();
        Self::from_stream(TcpStream::from(socket), address).unwrap()
    }

    fn from_stream(stream: TcpStream, address: &str) -> io::Result<Self> {
        stream.set_read_timeout(Some(super::TEST_TIMEOUT))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream: BufReader::new(stream), address: address.to_owned() })
    }

    /// `POST /v1/check` for these facts.
    pub fn check(&mut self, facts: &Value) -> HttpTestResponse {
        self.post("/v1/check", &json!({ "facts": facts }).to_string())
    }

    pub fn post(&mut self, path: &str, body: &str) -> HttpTestResponse {
        self.send(&format!("{}{body}", self.request_head("POST", path, body.len())));
        self.read_response()
    }

    pub fn get(&mut self, path: &str) -> HttpTestResponse {
        self.send(&self.request_head("GET", path, 0));
        self.read_response()
    }

    /// Sends a request with additional headers; `line` is method and path, such as
    /// `PUT /v1/rules/x`.
    pub fn request(
        &mut self,
        line: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> HttpTestResponse {
        self.send_request(line, headers, body);
        self.read_response()
    }

    /// Like `request`, but does not wait for the response.
    pub fn send_request(&mut self, line: &str, headers: &[(&str, &str)], body: &str) {
        let more: String = headers.iter().map(|(n, v)| format!("{n}: {v}\r\n")).collect();
        let (address, length) = (&self.address, body.len());
        self.send(&format!(
            "{line} HTTP/1.1\r\nhost: {address}\r\ncontent-length: {length}\r\n{more}\r\n{body}"
        ));
    }

    /// Sends a GET without a body, with additional headers.
    pub fn get_with(&mut self, path: &str, headers: &[(&str, &str)]) -> HttpTestResponse {
        let more: String = headers.iter().map(|(n, v)| format!("{n}: {v}\r\n")).collect();
        self.send(&format!("GET {path} HTTP/1.1\r\nhost: {}\r\n{more}\r\n", self.address));
        self.read_response()
    }

    pub fn request_head(&self, method: &str, path: &str, length: usize) -> String {
        format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\ncontent-length: {length}\r\n\r\n",
            self.address
        )
    }

    pub fn send(&mut self, bytes: &str) {
        self.try_send(bytes).unwrap();
    }

    /// Like `send`, for a server that may be down.
    pub fn try_send(&mut self, bytes: &str) -> io::Result<()> {
        self.stream.get_mut().write_all(bytes.as_bytes())
    }

    pub fn read_response(&mut self) -> HttpTestResponse {
        self.try_read_response().unwrap()
    }

    /// Reads the next response. Fails if the connection closes first or the read times out.
    pub fn try_read_response(&mut self) -> io::Result<HttpTestResponse> {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if self.stream.read_line(&mut head)? == 0 {
                return Err(io::Error::other(format!("closed after `{head}`")));
            }
        }
        let head = head.to_lowercase();
        let length = find_header(&head, "content-length").unwrap_or("0").parse().unwrap();
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body)?;
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let text = || Value::String(String::from_utf8_lossy(&body).into_owned());
        Ok(HttpTestResponse {
            status,
            body: serde_json::from_slice(&body).unwrap_or_else(|_| text()),
            head,
        })
    }

    /// Sends the bytes, ignoring errors, and reads until the server closes the connection.
    pub fn send_and_read_to_end(mut self, bytes: &[u8]) -> String {
        let _ = self.stream.get_mut().write_all(bytes);
        let mut received = Vec::new();
        let _ = self.stream.read_to_end(&mut received);
        String::from_utf8_lossy(&received).into_owned()
    }

    /// The underlying connection.
    pub fn stream_mut(&mut self) -> &mut TcpStream {
        self.stream.get_mut()
    }
}

impl HttpTestResponse {
    pub fn header(&self, name: &str) -> Option<&str> {
        find_header(&self.head, name)
    }

    /// IDs of the rules that applied to the request.
    pub fn rule_ids(&self) -> Vec<&str> {
        self.body["rules"].as_array().unwrap().iter().map(|r| r["id"].as_str().unwrap()).collect()
    }
}

fn find_header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}
