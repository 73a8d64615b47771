//! Writes response headers, and lists them in `Access-Control-Expose-Headers` for scripts in a
//! browser.

use std::cell::RefCell;

use bytes::{BufMut, BytesMut};
use http::header::{ACCESS_CONTROL_EXPOSE_HEADERS, HeaderMap, HeaderName, HeaderValue};

/// Adds headers to a response. A response from an upstream may already have some of them.
pub(super) struct HeaderWriter<'h> {
    headers: &'h mut HeaderMap,
    expose: bool,
    /// Comma-separated names of the headers to expose.
    exposed_names: BytesMut,
}

/// Numbers that rarely differ between consecutive responses.
#[derive(Clone, Copy)]
pub(super) enum CachedNumber {
    Limit,
    /// The reset, in seconds.
    Reset,
}

/// Per-thread scratch buffer and cache of the last header values. Cloning a value is cheaper
/// than formatting it, and a thread-local cache avoids contended reference counts.
struct HeaderValueCache {
    text: Vec<u8>,
    /// The last number of each [`CachedNumber`], and its value.
    numbers: [(u64, HeaderValue); 2],
    /// The last cached text, and its key.
    last: (HeaderCacheKey, HeaderValue),
}

/// Identifies a cached text: the serial of the rule set, the index of the rule, and the limit.
pub(super) type HeaderCacheKey = ((u64, u32), u64);

thread_local! {
    static VALUE_CACHE: RefCell<HeaderValueCache> = const {
        let numbers = [const { (0, HeaderValue::from_static("0")) }; 2];
        // No rule set has serial 0.
        let last = (((0, 0), 0), HeaderValue::from_static(""));
        RefCell::new(HeaderValueCache { text: Vec::new(), numbers, last })
    };
}

impl HeaderValueCache {
    /// Builds a value from the text that `write` produces; `None` unless it is printable ASCII.
    fn render_value(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Option<HeaderValue> {
        self.text.clear();
        write(&mut self.text);
        HeaderValue::from_bytes(&self.text).ok()
    }

    /// Like `render_value`, but reuses the last value if the key is unchanged.
    fn cached_value(
        &mut self,
        key: HeaderCacheKey,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Option<HeaderValue> {
        if self.last.0 != key {
            self.last = (key, self.render_value(write)?);
        }
        Some(self.last.1.clone())
    }

    /// The value of a number; reuses the last value if the number is unchanged.
    fn cached_number(&mut self, slot: CachedNumber, number: u64) -> HeaderValue {
        let (last, value) = &mut self.numbers[slot as usize];
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

    /// Writes a header, replacing all headers of that name, and exposes it if configured.
    pub(super) fn put(&mut self, name: HeaderName, value: HeaderValue) {
        if self.expose {
            if !self.exposed_names.is_empty() {
                self.exposed_names.put_slice(b", ");
            }
            self.exposed_names.put_slice(name.as_str().as_bytes());
        }
        self.put_unexposed(name, value);
    }

    /// Writes a header without exposing it.
    pub(super) fn put_unexposed(&mut self, name: HeaderName, value: HeaderValue) {
        self.headers.insert(name, value);
    }

    /// Like [`Self::put`], for a number.
    pub(super) fn put_number(&mut self, name: HeaderName, number: u64) {
        self.put_text(name, |text| write_digits(text, number));
    }

    /// Like [`Self::put`], for text. Removes the header if the text is not printable ASCII.
    pub(super) fn put_text(&mut self, name: HeaderName, write: impl FnOnce(&mut Vec<u8>)) {
        self.put_or_remove(name, VALUE_CACHE.with_borrow_mut(|cache| cache.render_value(write)));
    }

    /// Like [`Self::put_text`], for text that rarely differs from the previous response.
    pub(super) fn put_cached(
        &mut self,
        name: HeaderName,
        key: HeaderCacheKey,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        let value = VALUE_CACHE.with_borrow_mut(|cache| cache.cached_value(key, write));
        self.put_or_remove(name, value);
    }

    /// Like [`Self::put_number`], for a number that rarely differs from the previous response.
    pub(super) fn put_number_cached(&mut self, name: HeaderName, slot: CachedNumber, number: u64) {
        self.put(name, VALUE_CACHE.with_borrow_mut(|cache| cache.cached_number(slot, number)));
    }

    fn put_or_remove(&mut self, name: HeaderName, value: Option<HeaderValue>) {
        match value {
            Some(value) => self.put(name, value),
            None => self.remove(&name),
        }
    }

    /// Removes a header of the upstream that Tidegate has no value for, because Tidegate replaces
    /// the rest of its family.
    pub(super) fn remove(&mut self, name: &HeaderName) {
        self.headers.remove(name);
    }

    /// Appends the exposed names to those that the upstream exposes.
    pub(super) fn finish(self) {
        if !self.exposed_names.is_empty()
            && let Ok(names) = HeaderValue::from_maybe_shared(self.exposed_names.freeze())
        {
            self.headers.append(ACCESS_CONTROL_EXPOSE_HEADERS, names);
        }
    }
}

/// Appends a number in decimal.
pub(super) fn write_digits(text: &mut Vec<u8>, number: u64) {
    text.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: HeaderName = HeaderName::from_static("ratelimit");

    #[test]
    fn invalid_header_text_is_omitted_unexposed() {
        let invalid = |text: &mut Vec<u8>| text.extend_from_slice(b"a\r\nSet-Cookie: b");
        let put: [fn(&mut HeaderWriter<'_>, _); 2] = [
            |writer, write: fn(&mut Vec<u8>)| writer.put_text(NAME, write),
            |writer, write| writer.put_cached(NAME, ((1, 0), 5), write),
        ];
        for put in put {
            let mut headers = HeaderMap::new();
            headers.insert(NAME, HeaderValue::from_static("the upstream's"));
            let mut writer = HeaderWriter::new(&mut headers, true);
            put(&mut writer, invalid);
            writer.finish();
            assert!(headers.is_empty(), "{headers:?}");
        }
    }

    #[test]
    fn cached_value_follows_changed_number() {
        for number in [10, 10, 7, 10, 0] {
            let mut headers = HeaderMap::new();
            let mut writer = HeaderWriter::new(&mut headers, false);
            writer.put_number_cached(NAME, CachedNumber::Limit, number);
            writer.put_number_cached(HeaderName::from_static("x"), CachedNumber::Reset, 7);
            let key = ((1, 0), number);
            writer.put_cached(HeaderName::from_static("y"), key, |text| write_digits(text, number));
            writer.finish();
            assert_eq!(headers[NAME], number.to_string());
            assert_eq!(headers["x"], "7");
            assert_eq!(headers["y"], number.to_string());
        }
    }
}
