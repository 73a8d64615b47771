//! Header lines while they are written, and the one that opens them to scripts in a browser.

use bytes::{BufMut, BytesMut};
use http::header::{ACCESS_CONTROL_EXPOSE_HEADERS, HeaderMap, HeaderName, HeaderValue};

/// The headers of an answer, which may be an upstream's and have some already.
pub(super) struct Lines<'h> {
    headers: &'h mut HeaderMap,
    /// The names that were written, if they are to be exposed.
    exposed: Option<BytesMut>,
    /// Where values are written, one after the other, so that they share one piece of memory.
    space: BytesMut,
}

/// Room for the values of two families.
const USUAL_BYTES: usize = 160;

impl<'h> Lines<'h> {
    pub(super) fn new(headers: &'h mut HeaderMap, expose: bool) -> Self {
        Self { headers, exposed: expose.then(BytesMut::new), space: BytesMut::new() }
    }

    /// Writes a header in place of all that have its name.
    pub(super) fn put(&mut self, name: HeaderName, value: impl Into<HeaderValue>) {
        if let Some(exposed) = &mut self.exposed {
            if !exposed.is_empty() {
                exposed.put_slice(b", ");
            }
            exposed.put_slice(name.as_str().as_bytes());
        }
        self.put_unexposed(name, value);
    }

    /// The same for a header that is nobody's business, or everybody's anyhow.
    pub(super) fn put_unexposed(&mut self, name: HeaderName, value: impl Into<HeaderValue>) {
        self.headers.insert(name, value.into());
    }

    /// The same for a number.
    pub(super) fn put_number(&mut self, name: HeaderName, number: u64) {
        self.put_text(name, |text| text.put_slice(itoa::Buffer::new().format(number).as_bytes()));
    }

    /// The same for text, which is printable ASCII; were it not, the header would be left out.
    pub(super) fn put_text(&mut self, name: HeaderName, write: impl FnOnce(&mut BytesMut)) {
        if self.space.capacity() == 0 {
            self.space.reserve(USUAL_BYTES);
        }
        write(&mut self.space);
        match HeaderValue::from_maybe_shared(self.space.split().freeze()) {
            Ok(value) => self.put(name, value),
            Err(_) => self.leave_out(&name),
        }
    }

    /// Takes away what an upstream says, where we cannot say better: the rest of its family is ours.
    pub(super) fn leave_out(&mut self, name: &HeaderName) {
        self.headers.remove(name);
    }

    /// Names what was written to browsers, beside what the upstream names.
    pub(super) fn finish(self) {
        if let Some(names) = self.exposed.filter(|names| !names.is_empty())
            && let Ok(names) = HeaderValue::from_maybe_shared(names.freeze())
        {
            self.headers.append(ACCESS_CONTROL_EXPOSE_HEADERS, names);
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
        lines.put_text(NAME, |text| text.put_slice(b"a\r\nSet-Cookie: b"));
        lines.finish();
        assert!(headers.is_empty(), "{headers:?}");
    }
}
