//! Decompresses streams of bytes.

use std::io;

use actix_web::web::Bytes;
use casement_domain::session_operation::{ByteStream, OperationError};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use zstd::stream::raw::{DParameter, Decoder, Operation as _};

/// The maximum window, as a power of two, and so the memory of one stream. Archives of profiles need a quarter of that.
const MAX_WINDOW_LOG: u32 = 23;
/// The maximum size of one piece, in bytes.
const PIECE_BYTES: usize = 128 << 10;

struct Decompression {
    content: ByteStream,
    decoder: Decoder<'static>,
    /// The compressed bytes that are not decompressed yet.
    input: Bytes,
    /// Whether the bytes so far end with a whole frame.
    is_whole: bool,
    /// Whether the last piece filled the buffer, so that the decoder may hold further output.
    is_full: bool,
    output: Vec<u8>,
}

/// Returns `content`, which is compressed with zstd, as it was before.
///
/// # Errors
/// If the decoder has no memory. The stream ends with an error if `content` is damaged or truncated.
pub(crate) fn decompressed(content: ByteStream) -> Result<ByteStream, OperationError> {
    let mut decoder = Decoder::new().map_err(failed)?;
    decoder.set_parameter(DParameter::WindowLogMax(MAX_WINDOW_LOG)).map_err(failed)?;
    let output = vec![0; PIECE_BYTES];
    let start = Decompression { content, decoder, input: Bytes::new(), is_whole: true, is_full: false, output };
    Ok(stream::try_unfold(start, |mut state| async move { Ok(state.next().await?.map(|piece| (piece, state))) })
        .boxed())
}

impl Decompression {
    async fn next(&mut self) -> Result<Option<Bytes>, OperationError> {
        loop {
            if self.input.is_empty() && !self.is_full {
                match self.content.try_next().await? {
                    Some(piece) => self.input = piece,
                    None if self.is_whole => return Ok(None),
                    None => return Err(failed(io::ErrorKind::UnexpectedEof.into())),
                }
            }
            let status = self.decoder.run_on_buffers(&self.input, &mut self.output).map_err(failed)?;
            let _ = self.input.split_to(status.bytes_read);
            self.is_full = status.bytes_written == self.output.len();
            if status.bytes_read > 0 || status.bytes_written > 0 {
                self.is_whole = status.remaining == 0;
            }
            if status.bytes_written > 0 {
                return Ok(Some(Bytes::copy_from_slice(&self.output[..status.bytes_written])));
            }
        }
    }
}

fn failed(error: io::Error) -> OperationError {
    OperationError::Failed(format!("the saved data cannot be decompressed: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(bytes: &[u8], size: usize) -> ByteStream {
        let pieces: Vec<_> = bytes.chunks(size).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
        stream::iter(pieces).boxed()
    }

    async fn read(bytes: &[u8], size: usize) -> Result<Vec<u8>, OperationError> {
        let pieces: Vec<Bytes> = decompressed(pieces(bytes, size))?.try_collect().await?;
        assert!(pieces.iter().all(|piece| piece.len() <= PIECE_BYTES));
        Ok(pieces.concat())
    }

    #[tokio::test]
    async fn pieces_of_any_size_give_the_same_bytes() {
        let plain: Vec<u8> = (0..1_000_000_u32).flat_map(u32::to_le_bytes).collect();
        let packed = zstd::encode_all(&plain[..], 1).expect("packed");
        for size in [7, 4096, packed.len()] {
            assert!(read(&packed, size).await.expect("read") == plain, "pieces of {size} bytes");
        }
        let two = [zstd::encode_all(&b"a"[..], 1).expect("packed"), zstd::encode_all(&b"b"[..], 1).expect("packed")];
        assert_eq!(read(&two.concat(), 3).await.expect("read"), b"ab");
        assert_eq!(read(&zstd::encode_all(&b""[..], 1).expect("packed"), 3).await.expect("read"), b"");
    }

    #[tokio::test]
    async fn damaged_and_truncated_bytes_are_errors() {
        let packed = zstd::encode_all(&b"an archive that is long enough to be cut".repeat(9)[..], 1).expect("packed");
        for cut in 1..packed.len() {
            assert!(read(&packed[..cut], 5).await.is_err(), "cut at {cut}");
        }
        assert!(read(b"no frame of zstd", 16).await.is_err());
    }
}
