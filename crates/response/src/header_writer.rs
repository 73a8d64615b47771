//! Header lines while they are written, and the one that opens them to scripts in a browser.

use std::cell::RefCell;

use bytes::{BufMut, BytesMut};
use http::header::{ACCESS_CONTROL_EXPOSE_HEADERS, HeaderMap, HeaderName, HeaderValue};

/// The headers of an answer, which may be an upstream's and have some already.
pub(super) struct HeaderWriter<'h> {
    headers: &'h mut HeaderMap,
    expose: bool,
    /// Those that are to be exposed.
    exposed_names: BytesMut,
}

/// Numbers that nearly every answer says again.
#[derive(Clone, Copy)]
pub(super) enum CachedNumber {
    Limit,
    /// The second of the reset.
    Reset,
}

/// Where a thread writes values, and the last ones that it said again and again: to copy a value is less than to
/// make it, and no other thread counts who has a copy.
struct HeaderValueCache {
    text: Vec<u8>,
    /// The last number of each kind with its text.
    numbers: [(u64, HeaderValue); 2],
    /// The last text that was to be said again, and of what it was.
    last: (HeaderCacheKey, HeaderValue),
}

/// A rule of all there were, and its limit: what a text is of.
pub(super) type HeaderCacheKey = ((u64, u32), u64);

thread_local! {
    static VALUE_CACHE: RefCell<HeaderValueCache> = const {
        let numbers = [const { (0, HeaderValue::from_static("0")) }; 2];
        // No rule set has this number.
        let last = (((0, 0), 0), HeaderValue::from_static(""));
        RefCell::new(HeaderValueCache { text: Vec::new(), numbers, last })
    };
}

impl HeaderValueCache {
    /// The value of a text, which is printable ASCII; none were it not.
    fn render_value(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Option<HeaderValue> {
        self.text.clear();
        write(&mut self.text);
        HeaderValue::from_bytes(&self.text).ok()
    }

    /// The same of a text that is mostly of the same as the last time.
    fn cached_value(
        &mut self,
        of: HeaderCacheKey,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Option<HeaderValue> {
        if self.last.0 != of {
            self.last = (of, self.render_value(write)?);
        }
        Some(self.last.1.clone())
    }

    /// The same of a number.
    fn cached_number(&mut self, same: CachedNumber, number: u64) -> HeaderValue {
        let (last, value) = &mut self.numbers[same as usize];
        if *last != number {
            (*last, *value) = (number, HeaderValue::from(number));
        }
        value.clone()
    }
}

impl<'h> HeaderWriter<'h> {
    pub(super) fn new(headers: &'h mut HeaderMap, expose: bool) -> Self {
        Self { headers, expose, exposed_names: BytesMut::new() }
    }

    /// Writes a header in place of all that have its name.
    pub(super) fn put(&mut self, name: HeaderName, value: HeaderValue) {
        if self.expose {
            if !self.exposed_names.is_empty() {
                self.exposed_names.put_slice(b", ");
            }
            self.exposed_names.put_slice(name.as_str().as_bytes());
        }
        self.put_unexposed(name, value);
    }

    /// The same for a header that is nobody's business, or everybody's anyhow.
    pub(super) fn put_unexposed(&mut self, name: HeaderName, value: HeaderValue) {
        self.headers.insert(name, value);
    }

    /// The same for a number.
    pub(super) fn put_number(&mut self, name: HeaderName, number: u64) {
        self.put_text(name, |text| write_digits(text, number));
    }

    /// The same for text, which is printable ASCII; were it not, the header would be left out.
    pub(super) fn put_text(&mut self, name: HeaderName, write: impl FnOnce(&mut Vec<u8>)) {
        self.put_or_remove(name, VALUE_CACHE.with_borrow_mut(|pad| pad.render_value(write)));
    }

    /// The same for text that is mostly of the same as in the answer before.
    pub(super) fn put_cached(
        &mut self,
        name: HeaderName,
        of: HeaderCacheKey,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        self.put_or_remove(name, VALUE_CACHE.with_borrow_mut(|pad| pad.cached_value(of, write)));
    }

    /// The same for such a number.
    pub(super) fn put_number_cached(&mut self, name: HeaderName, same: CachedNumber, number: u64) {
        self.put(name, VALUE_CACHE.with_borrow_mut(|pad| pad.cached_number(same, number)));
    }

    fn put_or_remove(&mut self, name: HeaderName, value: Option<HeaderValue>) {
        match value {
            Some(value) => self.put(name, value),
            None => self.remove(&name),
        }
    }

    /// Takes away what an upstream says, where we cannot say better: the rest of its family is ours.
    pub(super) fn remove(&mut self, name: &HeaderName) {
        self.headers.remove(name);
    }

    /// Names them to browsers beside what the upstream names.
    pub(super) fn finish(self) {
        if !self.exposed_names.is_empty()
            && let Ok(names) = HeaderValue::from_maybe_shared(self.exposed_names.freeze())
        {
            self.headers.append(ACCESS_CONTROL_EXPOSE_HEADERS, names);
        }
    }
}

/// A number as text.
pub(super) fn write_digits(text: &mut Vec<u8>, number: u64) {
    text.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: HeaderName = HeaderName::from_static("ratelimit");

    #[test]
    fn invalid_header_text_is_omitted_unexposed() {
        let unsayable = |text: &mut Vec<u8>| text.extend_from_slice(b"a\r\nSet-Cookie: b");
        let put: [fn(&mut HeaderWriter<'_>, _); 2] = [
            |lines, write: fn(&mut Vec<u8>)| lines.put_text(NAME, write),
            |lines, write| lines.put_cached(NAME, ((1, 0), 5), write),
        ];
        for put in put {
            let mut headers = HeaderMap::new();
            headers.insert(NAME, HeaderValue::from_static("the upstream's"));
            let mut lines = HeaderWriter::new(&mut headers, true);
            put(&mut lines, unsayable);
            lines.finish();
            assert!(headers.is_empty(), "{headers:?}");
        }
    }

    #[test]
    fn cached_value_follows_changed_number() {
        for number in [10, 10, 7, 10, 0] {
            let mut headers = HeaderMap::new();
            let mut lines = HeaderWriter::new(&mut headers, false);
            lines.put_number_cached(NAME, CachedNumber::Limit, number);
            lines.put_number_cached(HeaderName::from_static("x"), CachedNumber::Reset, 7);
            let of = ((1, 0), number);
            lines.put_cached(HeaderName::from_static("y"), of, |text| write_digits(text, number));
            lines.finish();
            assert_eq!(headers[NAME], number.to_string());
            assert_eq!(headers["x"], "7");
            assert_eq!(headers["y"], number.to_string());
        }
    }
}
