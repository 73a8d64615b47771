//! A message while it is written. What has the value that a missing field has is left out, as proto3 does.

/// Bytes that end with the message so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Writer(Vec<u8>);

const NUMBER: u32 = 0;
const EIGHT_BYTES: u32 = 1;
const BYTES: u32 = 2;
const FOUR_BYTES: u32 = 5;

impl Writer {
    /// A message after so many bytes that are filled in later.
    pub(crate) fn after(reserved: usize, room: usize) -> Self {
        let mut bytes = Vec::with_capacity(reserved + room);
        bytes.resize(reserved, 0);
        Self(bytes)
    }

    pub(crate) fn number(&mut self, field: u32, value: u64) {
        if value != 0 {
            self.tag(field, NUMBER);
            self.varint(value);
        }
    }

    /// A number that is one of several things a value can be, and so is there even if it is nought.
    pub(crate) fn choice(&mut self, field: u32, value: u64) {
        self.tag(field, NUMBER);
        self.varint(value);
    }

    pub(crate) fn fixed64(&mut self, field: u32, value: u64) {
        if value != 0 {
            self.tag(field, EIGHT_BYTES);
            self.0.extend_from_slice(&value.to_le_bytes());
        }
    }

    pub(crate) fn fixed32(&mut self, field: u32, value: u32) {
        if value != 0 {
            self.tag(field, FOUR_BYTES);
            self.0.extend_from_slice(&value.to_le_bytes());
        }
    }

    pub(crate) fn bytes(&mut self, field: u32, value: &[u8]) {
        if !value.is_empty() {
            self.entry(field, value);
        }
    }

    /// The same for a list, where an empty one is there too.
    pub(crate) fn entry(&mut self, field: u32, value: &[u8]) {
        self.tag(field, BYTES);
        self.varint(value.len() as u64);
        self.0.extend_from_slice(value);
    }

    /// A message inside, which is there even if it is empty.
    pub(crate) fn message(&mut self, field: u32, write: impl FnOnce(&mut Self)) {
        self.tag(field, BYTES);
        let at = self.0.len();
        // Most are shorter than 128 bytes, and their length is one.
        self.0.push(0);
        write(self);
        match u8::try_from(self.0.len() - at - 1) {
            Ok(length @ ..0x80) => self.0[at] = length,
            _ => {
                let mut length = Self::default();
                length.varint((self.0.len() - at - 1) as u64);
                self.0.splice(at..=at, length.0);
            }
        }
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        self.0
    }

    fn tag(&mut self, field: u32, wire_type: u32) {
        self.varint(u64::from(field << 3 | wire_type));
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value.to_le_bytes()[0] | 0x80);
            value >>= 7;
        }
        self.0.push(value.to_le_bytes()[0]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_written_as_they_are_read_and_defaults_are_left_out() {
        let mut writer = Writer::after(2, 16);
        writer.number(1, 150);
        writer.number(2, 0);
        writer.bytes(3, b"");
        writer.bytes(3, b"hi");
        writer.entry(4, b"");
        writer.message(5, |_| {});
        writer.fixed32(7, 0);
        writer.fixed64(7, 0);
        writer.message(6, |inner| inner.message(1, |inner| inner.bytes(1, &[7; 127])));
        let expected = [
            &[0, 0, 0x08, 0x96, 0x01, 0x1a, 2, b'h', b'i', 0x22, 0, 0x2a, 0][..],
            &[0x32, 0x84, 0x01, 0x0a, 0x81, 0x01, 0x0a, 0x7f],
            &[7; 127],
        ];
        assert_eq!(writer.finish(), expected.concat());
        let mut writer = Writer::default();
        writer.choice(3, 0);
        writer.fixed64(7, 0x0102);
        writer.fixed32(16, 1);
        let expected = [0x18, 0, 0x39, 2, 1, 0, 0, 0, 0, 0, 0, 0x85, 0x01, 1, 0, 0, 0];
        assert_eq!(writer.finish(), expected);
    }
}
