//! Writes a message. Fields with their default value are omitted, as in proto3.

/// The bytes written so far.
#[derive(Clone, Debug, Default)]
pub struct ProtoWriter(Vec<u8>);

const WIRE_VARINT: u32 = 0;
const WIRE_FIXED64: u32 = 1;
const WIRE_LEN: u32 = 2;
const WIRE_FIXED32: u32 = 5;

impl ProtoWriter {
    /// Starts a message after `reserved` zero bytes, which the caller fills in later.
    pub fn with_reserved_prefix(reserved: usize, room: usize) -> Self {
        let mut bytes = Vec::with_capacity(reserved + room);
        bytes.resize(reserved, 0);
        Self(bytes)
    }

    /// Writes a varint; zero, the default, is omitted.
    pub fn varint_field(&mut self, field: u32, value: u64) {
        if value != 0 {
            self.write_tag(field, WIRE_VARINT);
            self.write_varint(value);
        }
    }

    /// Writes a varint in a `oneof`, which is present even if it is zero.
    pub fn oneof_varint_field(&mut self, field: u32, value: u64) {
        self.write_tag(field, WIRE_VARINT);
        self.write_varint(value);
    }

    /// Writes an eight-byte number; zero is omitted.
    pub fn fixed64(&mut self, field: u32, value: u64) {
        if value != 0 {
            self.write_tag(field, WIRE_FIXED64);
            self.0.extend_from_slice(&value.to_le_bytes());
        }
    }

    /// Writes a four-byte number; zero is omitted.
    pub fn fixed32(&mut self, field: u32, value: u32) {
        if value != 0 {
            self.write_tag(field, WIRE_FIXED32);
            self.0.extend_from_slice(&value.to_le_bytes());
        }
    }

    /// Writes length-delimited bytes, a string or a message; an empty value is omitted.
    pub fn bytes(&mut self, field: u32, value: &[u8]) {
        if !value.is_empty() {
            self.repeated_bytes(field, value);
        }
    }

    /// Writes an element of a repeated field, which is present even if it is empty.
    pub fn repeated_bytes(&mut self, field: u32, value: &[u8]) {
        self.write_tag(field, WIRE_LEN);
        self.write_varint(value.len() as u64);
        self.0.extend_from_slice(value);
    }

    /// Writes a nested message, which is present even if it is empty.
    pub fn message(&mut self, field: u32, write: impl FnOnce(&mut Self)) {
        self.write_tag(field, WIRE_LEN);
        let at = self.0.len();
        // Most messages are shorter than 128 bytes, so their length takes one byte.
        self.0.push(0);
        write(self);
        match u8::try_from(self.0.len() - at - 1) {
            Ok(length @ ..0x80) => self.0[at] = length,
            _ => {
                let mut length = Self::default();
                length.write_varint((self.0.len() - at - 1) as u64);
                self.0.splice(at..=at, length.0);
            }
        }
    }

    /// Returns the bytes.
    pub fn finish(self) -> Vec<u8> {
        self.0
    }

    fn write_tag(&mut self, field: u32, wire_type: u32) {
        self.write_varint(u64::from(field << 3 | wire_type));
    }

    fn write_varint(&mut self, mut value: u64) {
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
    fn written_fields_match_wire_format() {
        let mut writer = ProtoWriter::with_reserved_prefix(2, 16);
        writer.varint_field(1, 150);
        writer.varint_field(2, 0);
        writer.bytes(3, b"");
        writer.bytes(3, b"hi");
        writer.repeated_bytes(4, b"");
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
        let mut writer = ProtoWriter::default();
        writer.oneof_varint_field(3, 0);
        writer.fixed64(7, 0x0102);
        writer.fixed32(16, 1);
        let expected = [0x18, 0, 0x39, 2, 1, 0, 0, 0, 0, 0, 0, 0x85, 0x01, 1, 0, 0, 0];
        assert_eq!(writer.finish(), expected);
    }
}
