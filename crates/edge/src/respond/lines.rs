//! Header lines while they are written, and the one that opens them to scripts in a browser.

use std::cell::RefCell;

use bytes::{BufMut, BytesMut};
use http::header::{ACCESS_CONTROL_EXPOSE_HEADERS, HeaderMap, HeaderName, HeaderValue};

/// The headers of an answer, which may be an upstream's and have some already.
pub(super) struct Lines<'h> {
    headers: &'h mut HeaderMap,
    expose: bool,
    /// Those that are to be exposed.
    names: BytesMut,
}

/// What nearly every answer says again: the limit, the second of its reset, the policy.
#[derive(Clone, Copy)]
pub(super) enum Same {
    Limit,
    Reset,
    Policy,
}

/// Where a thread writes values, and the last ones that it said again and again: to copy a value is less than to
/// make it, and no other thread counts who has a copy.
struct Pad {
    text: Vec<u8>,
    last: [HeaderValue; 3],
}

thread_local! {
    static PAD: RefCell<Pad> = const {
        RefCell::new(Pad { text: Vec::new(), last: [const { HeaderValue::from_static("") }; 3] })
    };
}

impl Pad {
    /// The value of a text, which is printable ASCII; none were it not.
    fn value(
        &mut self,
        same: Option<Same>,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Option<HeaderValue> {
        let Self { text, last } = self;
        text.clear();
        write(text);
        let Some(same) = same else { return HeaderValue::from_bytes(text).ok() };
        let last = &mut last[same as usize];
        if last.as_bytes() != *text {
            *last = HeaderValue::from_bytes(text).ok()?;
        }
        Some(last.clone())
    }
}

impl<'h> Lines<'h> {
    pub(super) fn new(headers: &'h mut HeaderMap, expose: bool) -> Self {
        Self { headers, expose, names: BytesMut::new() }
    }

    /// Writes a header in place of all that have its name.
    pub(super) fn put(&mut self, name: HeaderName, value: HeaderValue) {
        if self.expose {
            if !self.names.is_empty() {
                self.names.put_slice(b", ");
            }
            self.names.put_slice(name.as_str().as_bytes());
        }
        self.put_unexposed(name, value);
    }

    /// The same for a header that is nobody's business, or everybody's anyhow.
    pub(super) fn put_unexposed(&mut self, name: HeaderName, value: HeaderValue) {
        self.headers.insert(name, value);
    }

    /// The same for a number.
    pub(super) fn put_number(&mut self, name: HeaderName, number: u64) {
        self.put_text(name, |text| digits(text, number));
    }

    /// The same for text, which is printable ASCII; were it not, the header would be left out.
    pub(super) fn put_text(&mut self, name: HeaderName, write: impl FnOnce(&mut Vec<u8>)) {
        self.put_written(name, None, write);
    }

    /// The same for what is mostly the same as in the answer before.
    pub(super) fn put_again(
        &mut self,
        name: HeaderName,
        same: Same,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        self.put_written(name, Some(same), write);
    }

    fn put_written(
        &mut self,
        name: HeaderName,
        same: Option<Same>,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        match PAD.with_borrow_mut(|pad| pad.value(same, write)) {
            Some(value) => self.put(name, value),
            None => self.leave_out(&name),
        }
    }

    /// Takes away what an upstream says, where we cannot say better: the rest of its family is ours.
    pub(super) fn leave_out(&mut self, name: &HeaderName) {
        self.headers.remove(name);
    }

    /// Names them to browsers beside what the upstream names.
    pub(super) fn finish(self) {
        if !self.names.is_empty()
            && let Ok(names) = HeaderValue::from_maybe_shared(self.names.freeze())
        {
            self.headers.append(ACCESS_CONTROL_EXPOSE_HEADERS, names);
        }
    }
}

/// A number as text.
pub(super) fn digits(text: &mut Vec<u8>, number: u64) {
    text.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: HeaderName = HeaderName::from_static("ratelimit");

    #[test]
    fn text_that_no_header_can_carry_is_left_out_and_not_exposed() {
        for same in [None, Some(Same::Policy)] {
            let mut headers = HeaderMap::new();
            headers.insert(NAME, HeaderValue::from_static("the upstream's"));
            let mut lines = Lines::new(&mut headers, true);
            lines.put_written(NAME, same, |text| text.extend_from_slice(b"a\r\nSet-Cookie: b"));
            lines.finish();
            assert!(headers.is_empty(), "{headers:?}");
        }
    }

    #[test]
    fn what_was_said_before_is_said_only_where_it_is_the_same() {
        for number in [10, 10, 7, 10, 0] {
            let mut headers = HeaderMap::new();
            let mut lines = Lines::new(&mut headers, false);
            lines.put_again(NAME, Same::Limit, |text| digits(text, number));
            lines.put_again(HeaderName::from_static("x"), Same::Reset, |text| digits(text, 7));
            lines.finish();
            assert_eq!(headers[NAME], number.to_string());
            assert_eq!(headers["x"], "7");
        }
    }
}
