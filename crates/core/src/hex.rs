//! Hexadecimal output for hashes. It avoids `std::fmt`, because every refusal writes some.

use crate::key::Fingerprint;

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// The sixteen hexadecimal digits of a number.
#[must_use]
pub fn digits(number: u64) -> [u8; 16] {
    let mut left = number;
    [(); 16].map(|()| {
        left = left.rotate_left(4);
        DIGITS[(left & 15) as usize]
    })
}

/// Appends the sixteen hexadecimal digits of a number to `text`.
pub fn push_hex(text: &mut String, number: u64) {
    // The digits are ASCII, so this never fails.
    text.push_str(str::from_utf8(&digits(number)).unwrap_or_default());
}

impl Fingerprint {
    /// The fingerprint as thirty-two hexadecimal digits.
    #[must_use]
    pub fn to_hex(self) -> String {
        let mut text = String::with_capacity(32);
        push_hex(&mut text, self.hi);
        push_hex(&mut text, self.lo);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_digits_match_std_formatting() {
        for shift in 0..64 {
            let (hi, lo) = (0x0123_4567_89ab_cdef >> shift, u64::MAX >> shift);
            assert_eq!(Fingerprint { hi, lo }.to_hex(), format!("{hi:016x}{lo:016x}"));
        }
    }
}
