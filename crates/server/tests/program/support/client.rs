//! One HTTP/1.1 connection, kept open, bytes as they are.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;

use serde_json::{Value, json};

/// A connection to a server.
pub struct Client {
    stream: BufReader<TcpStream>,
    address: String,
}

/// What came back.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: Value,
}

impl Client {
    pub fn connect(address: &str) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(super::DEADLINE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream: BufReader::new(stream), address: address.to_owned() }
    }

    /// `POST /v1/check` for these facts.
    pub fn check(&mut self, facts: &Value) -> Answer {
        self.post("/v1/check", &json!({ "facts": facts }).to_string())
    }

    pub fn post(&mut self, path: &str, body: &str) -> Answer {
        self.send(&format!("{}{body}", self.head("POST", path, body.len())));
        self.answer()
    }

    pub fn get(&mut self, path: &str) -> Answer {
        self.send(&self.head("GET", path, 0));
        self.answer()
    }

    pub fn head(&self, method: &str, path: &str, length: usize) -> String {
        format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\ncontent-length: {length}\r\n\r\n",
            self.address
        )
    }

    pub fn send(&mut self, bytes: &str) {
        self.stream.get_mut().write_all(bytes.as_bytes()).unwrap();
    }

    pub fn answer(&mut self) -> Answer {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(self.stream.read_line(&mut head).unwrap() > 0, "closed after `{head}`");
        }
        let head = head.to_lowercase();
        let length = header(&head, "content-length").unwrap().parse().unwrap();
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Answer { status, body: serde_json::from_slice(&body).unwrap(), head }
    }
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.head, name)
    }

    /// The ids of the rules that governed the request.
    pub fn rules(&self) -> Vec<&str> {
        self.body["rules"].as_array().unwrap().iter().map(|r| r["id"].as_str().unwrap()).collect()
    }
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}
