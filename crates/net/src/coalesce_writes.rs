//! Copies short vectored writes into one buffer before writing. For small messages a plain `write`
//! is cheaper for the kernel than `writev`, by more than the copy costs.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use smallvec::SmallVec;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Longest message that is copied; longer ones use a vectored write.
const MAX_COALESCED_BYTES: usize = 1024;

/// An I/O object whose short vectored writes are coalesced.
#[derive(Debug)]
pub struct CoalesceWrites<W>(pub(crate) W);

impl<W: AsyncRead + Unpin> AsyncRead for CoalesceWrites<W> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl<W: AsyncWrite + Unpin> AsyncWrite for CoalesceWrites<W> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let inner = Pin::new(&mut self.0);
        if let [whole] = slices {
            return inner.poll_write(cx, whole);
        }
        if slices.iter().map(|slice| slice.len()).sum::<usize>() > MAX_COALESCED_BYTES {
            return inner.poll_write_vectored(cx, slices);
        }
        let mut whole: SmallVec<[u8; MAX_COALESCED_BYTES]> = SmallVec::new();
        slices.iter().for_each(|slice| whole.extend_from_slice(slice));
        inner.poll_write(cx, &whole)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    /// Accepts at most `MAX_WRITE_BYTES` per call, and counts plain and vectored writes.
    #[derive(Default)]
    struct RecordingWriter {
        written: Vec<u8>,
        plain_writes: usize,
        vectored_writes: usize,
    }

    const MAX_WRITE_BYTES: usize = 700;

    impl AsyncWrite for RecordingWriter {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            let length = bytes.len().min(MAX_WRITE_BYTES);
            self.written.extend_from_slice(&bytes[..length]);
            self.plain_writes += 1;
            Poll::Ready(Ok(length))
        }

        fn poll_write_vectored(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            slices: &[IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            let bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.to_vec()).collect();
            let length = bytes.len().min(MAX_WRITE_BYTES);
            self.written.extend_from_slice(&bytes[..length]);
            self.vectored_writes += 1;
            Poll::Ready(Ok(length))
        }

        fn is_write_vectored(&self) -> bool {
            true
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn short_vectored_writes_are_coalesced() {
        // Slice lengths, bytes accepted, and the number of [plain, vectored] writes.
        let cases: [(&[usize], usize, [usize; 2]); 8] = [
            (&[], 0, [1, 0]),
            (&[5], 5, [1, 0]),
            (&[5_000], MAX_WRITE_BYTES, [1, 0]),
            (&[300, 0, 36], 336, [1, 0]),
            (&[600, 300], MAX_WRITE_BYTES, [1, 0]),
            (&[1_000, 24], MAX_WRITE_BYTES, [1, 0]),
            (&[1_000, 25], MAX_WRITE_BYTES, [0, 1]),
            (&[9_000, 9_000], MAX_WRITE_BYTES, [0, 1]),
        ];
        for (lengths, accepted, calls) in cases {
            let pieces: Vec<Vec<u8>> = lengths
                .iter()
                .map(|length| b"0123456789".repeat(*length)[..*length].to_vec())
                .collect();
            let slices: Vec<IoSlice<'_>> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
            let mut writer = CoalesceWrites(RecordingWriter::default());
            assert!(writer.is_write_vectored());
            let write = poll_fn(|cx| Pin::new(&mut writer).poll_write_vectored(cx, &slices));
            assert_eq!(write.await.unwrap(), accepted, "{lengths:?}");
            assert_eq!(writer.0.written, pieces.concat()[..accepted], "{lengths:?}");
            assert_eq!([writer.0.plain_writes, writer.0.vectored_writes], calls, "{lengths:?}");
        }
    }
}
