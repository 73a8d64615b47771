//! Writes replies in RESP2 and RESP3. A RESP3 map is a flat array of names and values in RESP2.

/// Protocol version of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum RespVersion {
    #[default]
    Resp2,
    Resp3,
}

/// Appends replies to a buffer.
#[derive(Debug)]
pub(super) struct ReplyWriter<'o> {
    out: &'o mut Vec<u8>,
    version: RespVersion,
}

impl<'o> ReplyWriter<'o> {
    pub(super) const fn new(out: &'o mut Vec<u8>, version: RespVersion) -> Self {
        Self { out, version }
    }

    /// Writes `+OK`.
    pub(super) fn ok(&mut self) {
        self.simple("OK");
    }

    /// Writes a simple string.
    pub(super) fn simple(&mut self, word: &'static str) {
        self.line(b'+', word.as_bytes());
    }

    /// Writes an error: an upper-case code and a message. Control characters in the message become
    /// spaces, because a line break would end the reply.
    pub(super) fn error(&mut self, code: &str, message: &str) {
        self.out.push(b'-');
        self.out.extend_from_slice(code.as_bytes());
        self.out.push(b' ');
        let printable = |byte: u8| if byte.is_ascii_control() { b' ' } else { byte };
        self.out.extend(message.bytes().map(printable));
        self.end_line();
    }

    pub(super) fn integer(&mut self, number: i64) {
        self.out.push(b':');
        if number < 0 {
            self.out.push(b'-');
        }
        self.digits(number.unsigned_abs());
        self.end_line();
    }

    /// Writes a count, saturating at `i64::MAX`.
    pub(super) fn count(&mut self, number: u64) {
        self.integer(i64::try_from(number).unwrap_or(i64::MAX));
    }

    pub(super) fn bulk(&mut self, bytes: &[u8]) {
        self.length_header(b'$', bytes.len());
        self.out.extend_from_slice(bytes);
        self.end_line();
    }

    pub(super) fn text(&mut self, text: &str) {
        self.bulk(text.as_bytes());
    }

    /// Writes a null.
    pub(super) fn null(&mut self) {
        match self.version {
            RespVersion::Resp2 => self.line(b'$', b"-1"),
            RespVersion::Resp3 => self.line(b'_', b""),
        }
    }

    /// Writes a boolean; RESP2 has none, so there it is the integer 1 or 0.
    pub(super) fn boolean(&mut self, truth: bool) {
        match self.version {
            RespVersion::Resp2 => self.integer(i64::from(truth)),
            RespVersion::Resp3 => self.line(b'#', if truth { b"t" } else { b"f" }),
        }
    }

    /// Writes the header of an array; `length` replies must follow.
    pub(super) fn array(&mut self, length: usize) {
        self.length_header(b'*', length);
    }

    /// Writes the header of a map; `pairs` pairs of replies must follow.
    pub(super) fn map(&mut self, pairs: usize) {
        match self.version {
            RespVersion::Resp2 => self.length_header(b'*', 2 * pairs),
            RespVersion::Resp3 => self.length_header(b'%', pairs),
        }
    }

    fn length_header(&mut self, kind: u8, length: usize) {
        self.out.push(kind);
        self.digits(length as u64);
        self.end_line();
    }

    fn line(&mut self, kind: u8, rest: &[u8]) {
        self.out.push(kind);
        self.out.extend_from_slice(rest);
        self.end_line();
    }

    fn digits(&mut self, mut number: u64) {
        let mut digits = [0; 20];
        let mut at = digits.len();
        loop {
            at -= 1;
            // The remainder is less than ten.
            digits[at] = b'0' + u8::try_from(number % 10).unwrap_or(0);
            number /= 10;
            if number == 0 {
                break;
            }
        }
        self.out.extend_from_slice(&digits[at..]);
    }

    fn end_line(&mut self) {
        self.out.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written_reply(version: RespVersion, write: impl FnOnce(&mut ReplyWriter<'_>)) -> String {
        let mut out = Vec::new();
        write(&mut ReplyWriter::new(&mut out, version));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn reply_encoding_follows_protocol_version() {
        let all = |reply: &mut ReplyWriter<'_>| {
            reply.ok();
            reply.null();
            reply.boolean(true);
            reply.boolean(false);
            reply.map(2);
            reply.array(1);
            reply.bulk(b"");
            reply.text("ab");
        };
        assert_eq!(
            written_reply(RespVersion::Resp2, all),
            "+OK\r\n$-1\r\n:1\r\n:0\r\n*4\r\n*1\r\n$0\r\n\r\n$2\r\nab\r\n"
        );
        assert_eq!(
            written_reply(RespVersion::Resp3, all),
            "+OK\r\n_\r\n#t\r\n#f\r\n%2\r\n*1\r\n$0\r\n\r\n$2\r\nab\r\n"
        );
    }

    #[test]
    fn integers_of_any_length_are_written() {
        for number in [0, 7, 10, -1, i64::MAX, i64::MIN] {
            let reply = written_reply(RespVersion::Resp2, |reply| reply.integer(number));
            assert_eq!(reply, format!(":{number}\r\n"));
        }
        assert_eq!(
            written_reply(RespVersion::Resp2, |reply| reply.count(u64::MAX)),
            format!(":{}\r\n", i64::MAX)
        );
    }

    #[test]
    fn error_reply_is_always_one_line() {
        let reply = written_reply(RespVersion::Resp3, |reply| reply.error("ERR", "a\r\n+OK\u{0}b"));
        assert_eq!(reply, "-ERR a  +OK b\r\n");
    }
}
