//! Short messages are written in one piece: for the system that is less work than a list of pieces, by
//! more than it takes to copy them together.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use smallvec::SmallVec;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The longest message that is copied together.
const SHORT: usize = 1024;

/// What is read from and written to.
#[derive(Debug)]
pub(crate) struct Brief<W>(pub(crate) W);

impl<W: AsyncRead + Unpin> AsyncRead for Brief<W> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl<W: AsyncWrite + Unpin> AsyncWrite for Brief<W> {
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
        let wire = Pin::new(&mut self.0);
        if let [whole] = slices {
            return wire.poll_write(cx, whole);
        }
        if slices.iter().map(|slice| slice.len()).sum::<usize>() > SHORT {
            return wire.poll_write_vectored(cx, slices);
        }
        let mut whole: SmallVec<[u8; SHORT]> = SmallVec::new();
        slices.iter().for_each(|slice| whole.extend_from_slice(slice));
        wire.poll_write(cx, &whole)
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

    /// Takes a few bytes at a time, and knows how they came.
    #[derive(Default)]
    struct Taker {
        taken: Vec<u8>,
        whole: usize,
        in_pieces: usize,
    }

    const AT_ONCE: usize = 700;

    impl AsyncWrite for Taker {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            let length = bytes.len().min(AT_ONCE);
            self.taken.extend_from_slice(&bytes[..length]);
            self.whole += 1;
            Poll::Ready(Ok(length))
        }

        fn poll_write_vectored(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            slices: &[IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            let bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.to_vec()).collect();
            let length = bytes.len().min(AT_ONCE);
            self.taken.extend_from_slice(&bytes[..length]);
            self.in_pieces += 1;
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
    async fn what_is_short_or_one_piece_is_written_whole_and_nothing_is_lost() {
        // The lengths of the pieces; what is taken; how often whole and how often in pieces.
        let cases: [(&[usize], usize, [usize; 2]); 8] = [
            (&[], 0, [1, 0]),
            (&[5], 5, [1, 0]),
            (&[5_000], AT_ONCE, [1, 0]),
            (&[300, 0, 36], 336, [1, 0]),
            (&[600, 300], AT_ONCE, [1, 0]),
            (&[1_000, 24], AT_ONCE, [1, 0]),
            (&[1_000, 25], AT_ONCE, [0, 1]),
            (&[9_000, 9_000], AT_ONCE, [0, 1]),
        ];
        for (lengths, taken, calls) in cases {
            let pieces: Vec<Vec<u8>> = lengths
                .iter()
                .map(|length| b"0123456789".repeat(*length)[..*length].to_vec())
                .collect();
            let slices: Vec<IoSlice<'_>> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
            let mut brief = Brief(Taker::default());
            assert!(brief.is_write_vectored());
            let write = poll_fn(|cx| Pin::new(&mut brief).poll_write_vectored(cx, &slices));
            assert_eq!(write.await.unwrap(), taken, "{lengths:?}");
            assert_eq!(brief.0.taken, pieces.concat()[..taken], "{lengths:?}");
            assert_eq!([brief.0.whole, brief.0.in_pieces], calls, "{lengths:?}");
        }
    }
}
