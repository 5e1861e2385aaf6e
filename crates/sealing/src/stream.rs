//! Seals content that does not fit into memory, with the STREAM construction over XChaCha20-Poly1305 and chunks of
//! 64 KiB.
//!
//! Each stream has a random key of its own, which is sealed under the master key. The nonce is the number of the chunk,
//! and the last chunk is marked: missing, exchanged or repeated chunks are detected before false content is returned.

use bytes::{Bytes, BytesMut};
use casement_domain::sealing::{SealError, Sealer as _, StreamSealer};
use casement_domain::session_operation::{ByteStream, OperationError};
use chacha20poly1305::XChaCha20Poly1305;
use chacha20poly1305::aead::stream::{DecryptorBE32, EncryptorBE32};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use secrecy::ExposeSecret as _;

use crate::MasterKeys;

/// The number of plain bytes of one chunk.
const CHUNK: usize = 64 << 10;
/// The number of bytes that sealing adds to a chunk.
const TAG: usize = 16;

/// Seals streams, each under a key of its own, which is sealed under the master keys.
#[derive(Clone, Debug)]
pub struct SealedStreams(MasterKeys);

impl SealedStreams {
    /// Creates the sealer; `keys` seal the keys of streams.
    #[must_use]
    pub fn new(keys: MasterKeys) -> Self {
        Self(keys)
    }
}

impl StreamSealer for SealedStreams {
    fn seal(&self, place: &str, content: ByteStream) -> Result<(Vec<u8>, ByteStream), SealError> {
        let key = secrecy::SecretBox::new(Box::new(self.0.entropy.secret_bytes()));
        let sealed_key = self.0.seal(place, key.expose_secret())?;
        // The key seals this one stream only, so the constant part of the nonce can be zero.
        let encryptor = EncryptorBE32::<XChaCha20Poly1305>::new(key.expose_secret().into(), &Default::default());
        let sealing = Chunks { content, held: BytesMut::new(), size: CHUNK, seal: Some(encryptor) };
        Ok((sealed_key, stream::try_unfold(sealing, Chunks::sealed).boxed()))
    }

    fn open(&self, place: &str, key: &[u8], content: ByteStream) -> Result<ByteStream, SealError> {
        let key = self.0.open(place, key)?;
        let key: &[u8; 32] = key.expose_secret().try_into().map_err(|_| SealError::Damaged)?;
        let decryptor = DecryptorBE32::<XChaCha20Poly1305>::new(key.into(), &Default::default());
        let opening = Chunks { content, held: BytesMut::new(), size: CHUNK + TAG, seal: Some(decryptor) };
        Ok(stream::try_unfold(opening, Chunks::opened).boxed())
    }
}

/// Content that is split into chunks of one size; the last chunk may be shorter or empty.
struct Chunks<S> {
    content: ByteStream,
    held: BytesMut,
    size: usize,
    /// `None` after the last chunk.
    seal: Option<S>,
}

impl<S> Chunks<S> {
    /// Returns the next chunk that is not the last; `None` if `held` is the rest.
    async fn next(&mut self) -> Result<Option<BytesMut>, OperationError> {
        loop {
            if self.held.len() > self.size {
                return Ok(Some(self.held.split_to(self.size)));
            }
            match self.content.try_next().await? {
                Some(more) => self.held.extend_from_slice(&more),
                None => return Ok(None),
            }
        }
    }
}

impl Chunks<EncryptorBE32<XChaCha20Poly1305>> {
    async fn sealed(mut self) -> Result<Option<(Bytes, Self)>, OperationError> {
        let Some(mut seal) = self.seal.take() else { return Ok(None) };
        let sealed = match self.next().await? {
            Some(chunk) => {
                let sealed = seal.encrypt_next(&chunk[..]);
                self.seal = Some(seal);
                sealed
            }
            None => seal.encrypt_last(&self.held[..]),
        };
        let sealed = sealed.map_err(|_| OperationError::TooLarge("too long to be sealed".to_owned()))?;
        Ok(Some((sealed.into(), self)))
    }
}

impl Chunks<DecryptorBE32<XChaCha20Poly1305>> {
    async fn opened(mut self) -> Result<Option<(Bytes, Self)>, OperationError> {
        let Some(mut seal) = self.seal.take() else { return Ok(None) };
        let opened = match self.next().await? {
            Some(chunk) => {
                let opened = seal.decrypt_next(&chunk[..]);
                self.seal = Some(seal);
                opened
            }
            None => seal.decrypt_last(&self.held[..]),
        };
        let opened = opened.map_err(|_| OperationError::Failed("the saved data is truncated or altered".to_owned()))?;
        Ok(Some((opened.into(), self)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use casement_domain::testing::CountingIds;

    use super::*;

    fn seals() -> (tempfile::TempDir, SealedStreams) {
        let folder = tempfile::tempdir().expect("a folder");
        let keys = MasterKeys::open(folder.path(), None, Arc::new(CountingIds::default())).expect("keys");
        (folder, SealedStreams(keys))
    }

    /// Returns the bytes as a stream of pieces that are not aligned with chunks.
    fn pieces(bytes: &[u8]) -> ByteStream {
        let pieces: Vec<_> = bytes.chunks(10_007).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
        stream::iter(pieces).boxed()
    }

    async fn whole(content: ByteStream) -> Result<Vec<u8>, OperationError> {
        let parts: Vec<Bytes> = content.try_collect().await?;
        Ok(parts.concat())
    }

    #[tokio::test]
    async fn sealed_content_of_any_length_opens() {
        let (_folder, seals) = seals();
        for length in [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, CHUNK + TAG, 3 * CHUNK, 3 * CHUNK + 5] {
            let plain: Vec<u8> = (0..length).map(|n| (n % 251) as u8).collect();
            let (key, sealed) = seals.seal("here", pieces(&plain)).expect("sealed");
            let sealed = whole(sealed).await.expect("sealed");
            assert_eq!(sealed.len(), length + TAG * length.div_ceil(CHUNK).max(1), "{length} bytes");
            let opened = seals.open("here", &key, pieces(&sealed)).expect("the key");
            assert!(whole(opened).await.expect("opened") == plain, "{length} bytes");
            assert!(seals.open("there", &key, pieces(&sealed)).is_err(), "in another place");
        }
    }

    #[tokio::test]
    async fn truncated_altered_or_reordered_content_is_refused() {
        let (_folder, seals) = seals();
        let plain = vec![7; 2 * CHUNK + 100];
        let (key, sealed) = seals.seal("here", pieces(&plain)).expect("sealed");
        let sealed = whole(sealed).await.expect("sealed");
        let (one, other) = (CHUNK + TAG, 2 * (CHUNK + TAG));
        let swapped = [&sealed[one..other], &sealed[..one], &sealed[other..]].concat();
        let repeated = [&sealed[..one], &sealed[..one], &sealed[one..]].concat();
        let mut altered = sealed.clone();
        altered[one + 5] ^= 1;
        let longer = [&sealed[..], b"x"].concat();
        let (other_key, _) = seals.seal("here", pieces(b"")).expect("sealed");
        for (what, bytes, key) in [
            ("nothing", &[][..], &key),
            ("cut in a chunk", &sealed[..one + 9], &key),
            ("cut behind a chunk", &sealed[..other], &key),
            ("cut behind the first", &sealed[..one], &key),
            ("swapped", &swapped, &key),
            ("repeated", &repeated, &key),
            ("altered", &altered, &key),
            ("longer", &longer, &key),
            ("another key", &sealed, &other_key),
        ] {
            let opened = whole(seals.open("here", key, pieces(bytes)).expect("the key")).await;
            assert!(matches!(opened, Err(OperationError::Failed(_))), "{what}");
        }
    }

    #[tokio::test]
    async fn interrupted_content_is_never_sealed_as_complete() {
        let (_folder, seals) = seals();
        let broken = stream::iter([Ok(Bytes::from(vec![1; 2 * CHUNK])), Err(OperationError::Broken("off".to_owned()))]);
        let (_, mut sealed) = seals.seal("here", broken.boxed()).expect("sealed");
        assert!(sealed.next().await.is_some_and(|part| part.is_ok()), "the first chunk is full");
        assert!(matches!(sealed.next().await, Some(Err(OperationError::Broken(_)))));
        assert!(sealed.next().await.is_none());
    }
}
