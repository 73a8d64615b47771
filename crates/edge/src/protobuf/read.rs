//! Fields of a message, one after the other.

use std::fmt;

/// Groups inside groups are skipped to this depth.
const MOST_GROUPS: u32 = 16;

/// What is left of a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a>(&'a [u8]);

/// The value of a field, as it is on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    /// Eight or four bytes, or a group: no message here has such a field.
    Other,
}

/// Bytes that are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

impl<'a> Reader<'a> {
    pub(crate) const fn new(message: &'a [u8]) -> Self {
        Self(message)
    }

    /// The next field: its number and value.
    pub(crate) fn field(&mut self) -> Result<Option<(u32, Value<'a>)>, Malformed> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let (number, wire_type) = self.tag()?;
        let value = match wire_type {
            0 => Value::Number(self.varint()?),
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| Malformed)?;
                Value::Bytes(self.take(length)?)
            }
            other => {
                self.skip(number, other, 0)?;
                Value::Other
            }
        };
        Ok(Some((number, value)))
    }

    fn tag(&mut self) -> Result<(u32, u8), Malformed> {
        let tag = u32::try_from(self.varint()?).map_err(|_| Malformed)?;
        // The lower three bits are the type.
        let (number, wire_type) = (tag >> 3, tag.to_le_bytes()[0] & 7);
        if number == 0 { Err(Malformed) } else { Ok((number, wire_type)) }
    }

    fn skip(&mut self, number: u32, wire_type: u8, depth: u32) -> Result<(), Malformed> {
        match wire_type {
            0 => self.varint().map(drop),
            1 => self.take(8).map(drop),
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| Malformed)?;
                self.take(length).map(drop)
            }
            3 if depth < MOST_GROUPS => loop {
                match self.tag()? {
                    (end, 4) if end == number => return Ok(()),
                    (inner, wire_type) => self.skip(inner, wire_type, depth + 1)?,
                }
            },
            5 => self.take(4).map(drop),
            _ => Err(Malformed),
        }
    }

    fn varint(&mut self) -> Result<u64, Malformed> {
        let mut value = 0;
        for (at, byte) in self.0.iter().take(10).enumerate() {
            let bits = u64::from(byte & 0x7f);
            // The tenth byte has room for one bit.
            if at == 9 && bits > 1 {
                return Err(Malformed);
            }
            value |= bits << (7 * at);
            if byte & 0x80 == 0 {
                self.0 = &self.0[at + 1..];
                return Ok(value);
            }
        }
        Err(Malformed)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the message is no protobuf")
    }
}

impl std::error::Error for Malformed {}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(bytes: &[u8]) -> Result<Vec<(u32, Value<'_>)>, Malformed> {
        let mut reader = Reader::new(bytes);
        let mut fields = Vec::new();
        while let Some(field) = reader.field()? {
            fields.push(field);
        }
        Ok(fields)
    }

    #[test]
    fn fields_of_all_types_are_read_and_unknown_ones_passed_over() {
        let bytes = [
            &[0x08, 0x96, 0x01][..],               // 1: 150
            &[0x12, 0x02, b'h', b'i'],             // 2: "hi"
            &[0x19, 1, 2, 3, 4, 5, 6, 7, 8],       // 3: eight bytes
            &[0x25, 1, 2, 3, 4],                   // 4: four bytes
            &[0x2b, 0x33, 0x08, 0x01, 0x34, 0x2c], // 5: a group with a group
            &[0x80, 0x80, 0x80, 0x80, 0x0f, 0x00], // the largest number
            &[0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
        ]
        .concat();
        let expected = [
            (1, Value::Number(150)),
            (2, Value::Bytes(b"hi")),
            (3, Value::Other),
            (4, Value::Other),
            (5, Value::Other),
            (0x1e00_0000, Value::Number(0)),
            (1, Value::Number(u64::MAX)),
        ];
        assert_eq!(fields(&bytes), Ok(expected.to_vec()));
        assert_eq!(fields(&[]), Ok(vec![]));
    }

    #[test]
    fn what_is_cut_off_or_impossible_is_malformed() {
        for bytes in [
            &[0x08][..],               // no value
            &[0x08, 0x80],             // half a number
            &[0x12, 0x05, b'h', b'i'], // longer than there is
            &[0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
            &[0x00, 0x00], // field 0
            &[0x0e],       // type 6
            &[0x0c],       // the end of a group that has none
            &[0x0b, 0x14], // the end of another
            &[0x0b; 64],   // groups without end
            &[0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02], // 65 bits
            &[0x80, 0x80, 0x80, 0x80, 0x10, 0x00], // a number of a field that is too large
        ] {
            assert_eq!(fields(bytes), Err(Malformed), "{bytes:x?}");
        }
    }
}
