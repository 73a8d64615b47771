//! Counts the forwarded bytes of a request body, for rules that charge for them.

use std::sync::Arc;

use parking_lot::Mutex;

/// A sum shared by two tasks: the body adds to it, and the charge closes it.
#[derive(Clone, Debug)]
pub struct ForwardedBytes(Arc<Mutex<Option<u64>>>);

/// The sum is closed: bytes forwarded from now on would not be charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForwardingClosedError;

impl Default for ForwardedBytes {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Some(0))))
    }
}

impl ForwardedBytes {
    /// Adds bytes before they are forwarded.
    ///
    /// # Errors
    /// If the sum is closed; the bytes must not be forwarded.
    pub fn add(&self, bytes: u64) -> Result<(), ForwardingClosedError> {
        let mut sum = self.0.lock();
        let sum = sum.as_mut().ok_or(ForwardingClosedError)?;
        *sum = sum.saturating_add(bytes);
        Ok(())
    }

    /// Closes the sum and returns it.
    pub fn close(&self) -> u64 {
        self.0.lock().take().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closed_sum_rejects_further_bytes() {
        let bytes = ForwardedBytes::default();
        let body = bytes.clone();
        assert_eq!((body.add(3), body.add(4)), (Ok(()), Ok(())));
        assert_eq!(bytes.close(), 7);
        assert_eq!(body.add(1), Err(ForwardingClosedError));
    }
}
