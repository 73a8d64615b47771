//! Header lines while they are written, and the one that opens them to scripts in a browser.

use std::ops::Range;

use bytes::{BufMut, Bytes, BytesMut};
use http::header::{ACCESS_CONTROL_EXPOSE_HEADERS, HeaderMap, HeaderName, HeaderValue};
use smallvec::SmallVec;

/// The headers of an answer, which may be an upstream's and have some already.
pub(super) struct Lines<'h> {
    headers: &'h mut HeaderMap,
    expose: bool,
    /// What is to be written: where each value stands in `space`, or a value that is there already.
    lines: SmallVec<[(HeaderName, Value); USUAL_LINES]>,
    /// The texts, one after the other, so that all values share one piece of memory.
    space: Vec<u8>,
}

/// The value of a header.
enum Value {
    Text(Range<usize>),
    Ready { value: HeaderValue, exposed: bool },
}

/// Room for the values of two families.
const USUAL_BYTES: usize = 160;
const USUAL_LINES: usize = 8;

impl<'h> Lines<'h> {
    pub(super) fn new(headers: &'h mut HeaderMap, expose: bool) -> Self {
        Self { headers, expose, lines: SmallVec::new(), space: Vec::new() }
    }

    /// Writes a header in place of all that have its name.
    pub(super) fn put(&mut self, name: HeaderName, value: HeaderValue) {
        self.lines.push((name, Value::Ready { value, exposed: true }));
    }

    /// The same for a header that is nobody's business, or everybody's anyhow.
    pub(super) fn put_unexposed(&mut self, name: HeaderName, value: HeaderValue) {
        self.lines.push((name, Value::Ready { value, exposed: false }));
    }

    /// The same for a number.
    pub(super) fn put_number(&mut self, name: HeaderName, number: u64) {
        let mut digits = itoa::Buffer::new();
        let digits = digits.format(number).as_bytes();
        self.put_text(name, |text| text.extend_from_slice(digits));
    }

    /// The same for text, which is printable ASCII; were it not, the header would be left out.
    pub(super) fn put_text(&mut self, name: HeaderName, write: impl FnOnce(&mut Vec<u8>)) {
        if self.space.capacity() == 0 {
            self.space.reserve_exact(USUAL_BYTES);
        }
        let start = self.space.len();
        write(&mut self.space);
        self.lines.push((name, Value::Text(start..self.space.len())));
    }

    /// Takes away what an upstream says, where we cannot say better: the rest of its family is ours.
    pub(super) fn leave_out(&mut self, name: &HeaderName) {
        self.headers.remove(name);
    }

    /// Writes them all, and names them to browsers beside what the upstream names.
    pub(super) fn finish(&mut self) {
        let Self { headers, expose, lines, space } = self;
        let (space, mut names) = (Bytes::from(std::mem::take(space)), BytesMut::new());
        for (name, value) in lines.drain(..) {
            let (value, exposed) = match value {
                Value::Ready { value, exposed } => (value, exposed),
                Value::Text(text) => match HeaderValue::from_maybe_shared(space.slice(text)) {
                    Ok(value) => (value, true),
                    Err(_) => {
                        headers.remove(&name);
                        continue;
                    }
                },
            };
            if *expose && exposed {
                if !names.is_empty() {
                    names.put_slice(b", ");
                }
                names.put_slice(name.as_str().as_bytes());
            }
            headers.insert(name, value);
        }
        if !names.is_empty()
            && let Ok(names) = HeaderValue::from_maybe_shared(names.freeze())
        {
            headers.append(ACCESS_CONTROL_EXPOSE_HEADERS, names);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: HeaderName = HeaderName::from_static("ratelimit");

    #[test]
    fn text_that_no_header_can_carry_is_left_out_and_not_exposed() {
        let mut headers = HeaderMap::new();
        headers.insert(NAME, HeaderValue::from_static("the upstream's"));
        let mut lines = Lines::new(&mut headers, true);
        lines.put_text(NAME, |text| text.extend_from_slice(b"a\r\nSet-Cookie: b"));
        lines.finish();
        assert!(headers.is_empty(), "{headers:?}");
    }
}
