//! Reads the fields of a message in order.

use std::fmt;

/// Maximum depth of nested groups that are skipped.
const MAX_GROUP_DEPTH: u32 = 16;

/// The unread part of a message.
#[derive(Clone, Copy, Debug)]
pub struct ProtoReader<'a>(&'a [u8]);

/// The value of a field on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireValue<'a> {
    /// A varint.
    Number(u64),
    /// A length-delimited value: bytes, a string or a message.
    Bytes(&'a [u8]),
    /// A fixed-size number or a group; no message here has such a field.
    Other,
}

/// The bytes are not a valid message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProtoDecodeError;

impl<'a> ProtoReader<'a> {
    /// A reader over the fields of a message.
    pub const fn new(message: &'a [u8]) -> Self {
        Self(message)
    }

    /// The next field's number and value; `None` at the end.
    pub fn next_field(&mut self) -> Result<Option<(u32, WireValue<'a>)>, ProtoDecodeError> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let (number, wire_type) = self.read_tag()?;
        let value = match wire_type {
            0 => WireValue::Number(self.read_varint()?),
            2 => {
                let length = usize::try_from(self.read_varint()?).map_err(|_| ProtoDecodeError)?;
                WireValue::Bytes(self.take_bytes(length)?)
            }
            other => {
                self.skip_field(number, other, 0)?;
                WireValue::Other
            }
        };
        Ok(Some((number, value)))
    }

    fn read_tag(&mut self) -> Result<(u32, u8), ProtoDecodeError> {
        let tag = u32::try_from(self.read_varint()?).map_err(|_| ProtoDecodeError)?;
        // The lower three bits are the wire type.
        let (number, wire_type) = (tag >> 3, tag.to_le_bytes()[0] & 7);
        if number == 0 { Err(ProtoDecodeError) } else { Ok((number, wire_type)) }
    }

    fn skip_field(
        &mut self,
        number: u32,
        wire_type: u8,
        depth: u32,
    ) -> Result<(), ProtoDecodeError> {
        match wire_type {
            0 => self.read_varint().map(drop),
            1 => self.take_bytes(8).map(drop),
            2 => {
                let length = usize::try_from(self.read_varint()?).map_err(|_| ProtoDecodeError)?;
                self.take_bytes(length).map(drop)
            }
            3 if depth < MAX_GROUP_DEPTH => loop {
                match self.read_tag()? {
                    (end, 4) if end == number => return Ok(()),
                    (inner, wire_type) => self.skip_field(inner, wire_type, depth + 1)?,
                }
            },
            5 => self.take_bytes(4).map(drop),
            _ => Err(ProtoDecodeError),
        }
    }

    fn read_varint(&mut self) -> Result<u64, ProtoDecodeError> {
        let mut value = 0;
        for (at, byte) in self.0.iter().take(10).enumerate() {
            let bits = u64::from(byte & 0x7f);
            // The tenth byte holds a single bit.
            if at == 9 && bits > 1 {
                return Err(ProtoDecodeError);
            }
            value |= bits << (7 * at);
            if byte & 0x80 == 0 {
                self.0 = &self.0[at + 1..];
                return Ok(value);
            }
        }
        Err(ProtoDecodeError)
    }

    fn take_bytes(&mut self, length: usize) -> Result<&'a [u8], ProtoDecodeError> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(ProtoDecodeError)?;
        self.0 = rest;
        Ok(taken)
    }
}

impl fmt::Display for ProtoDecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the message is not valid protobuf")
    }
}

impl std::error::Error for ProtoDecodeError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_fields(bytes: &[u8]) -> Result<Vec<(u32, WireValue<'_>)>, ProtoDecodeError> {
        let mut reader = ProtoReader::new(bytes);
        let mut fields = Vec::new();
        while let Some(field) = reader.next_field()? {
            fields.push(field);
        }
        Ok(fields)
    }

    #[test]
    fn all_wire_types_are_read() {
        let bytes = [
            &[0x08, 0x96, 0x01][..],               // 1: 150
            &[0x12, 0x02, b'h', b'i'],             // 2: "hi"
            &[0x19, 1, 2, 3, 4, 5, 6, 7, 8],       // 3: eight bytes
            &[0x25, 1, 2, 3, 4],                   // 4: four bytes
            &[0x2b, 0x33, 0x08, 0x01, 0x34, 0x2c], // 5: a group in a group
            &[0x80, 0x80, 0x80, 0x80, 0x0f, 0x00], // largest field number
            &[0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
        ]
        .concat();
        let expected = [
            (1, WireValue::Number(150)),
            (2, WireValue::Bytes(b"hi")),
            (3, WireValue::Other),
            (4, WireValue::Other),
            (5, WireValue::Other),
            (0x1e00_0000, WireValue::Number(0)),
            (1, WireValue::Number(u64::MAX)),
        ];
        assert_eq!(read_fields(&bytes), Ok(expected.to_vec()));
        assert_eq!(read_fields(&[]), Ok(vec![]));
    }

    #[test]
    fn truncated_or_invalid_input_is_rejected() {
        for bytes in [
            &[0x08][..],               // no value
            &[0x08, 0x80],             // truncated varint
            &[0x12, 0x05, b'h', b'i'], // longer than the input
            &[0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
            &[0x00, 0x00], // field 0
            &[0x0e],       // type 6
            &[0x0c],       // group end without a start
            &[0x0b, 0x14], // group end of another field
            &[0x0b; 64],   // unclosed groups
            &[0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02], // 65 bits
            &[0x80, 0x80, 0x80, 0x80, 0x10, 0x00], // field number too large
        ] {
            assert_eq!(read_fields(bytes), Err(ProtoDecodeError), "{bytes:x?}");
        }
    }
}
