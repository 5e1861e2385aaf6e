//! Encryption of secrets that are needed in clear text later: they are sealed before storing and opened for use.

use std::collections::BTreeMap;

use secrecy::{ExposeSecret as _, SecretSlice};

use crate::session_operation::ByteStream;

/// An error of sealing or opening. It reveals nothing of the content.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// The keys cannot be read.
    #[error("the master key cannot be read: {0}")]
    NoKey(String),
    /// The value was sealed with a key that does not exist here.
    #[error("sealed with master key {0}, which is not available")]
    UnknownKey(String),
    /// The value is not the one that was sealed in this place: it is cut, altered, or moved from another place.
    #[error("the sealed value is damaged or does not belong here")]
    Damaged,
}

/// The identifier of a master key. It reveals nothing of the key itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyId(pub [u8; 8]);

impl std::fmt::Display for KeyId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl KeyId {
    /// The format of sealed values: the first byte of each, before the id of its key.
    pub const FORM: u8 = 1;

    /// Returns the key of a sealed value, if its format is known.
    #[must_use]
    pub fn of(sealed: &[u8]) -> Option<Self> {
        match sealed {
            [Self::FORM, rest @ ..] => rest.first_chunk().copied().map(Self),
            _ => None,
        }
    }
}

/// The port that seals and opens short values. `place` names where a value is stored, such as `proxies/<id>/password`;
/// it is checked but not stored, so a value opens only with the place it was sealed for. Sealing the same value twice
/// gives different bytes.
pub trait Sealer: Send + Sync {
    /// Seals a value with the current key.
    ///
    /// # Errors
    /// [`SealError::NoKey`] if the keys cannot be read.
    fn seal(&self, place: &str, plain: &[u8]) -> Result<Vec<u8>, SealError>;

    /// Returns the content of a sealed value.
    ///
    /// # Errors
    /// See [`SealError`].
    fn open(&self, place: &str, sealed: &[u8]) -> Result<SecretSlice<u8>, SealError>;

    /// Returns the current key.
    ///
    /// # Errors
    /// [`SealError::NoKey`] if the keys cannot be read.
    fn current(&self) -> Result<KeyId, SealError>;

    /// Returns whether values that are sealed with this key can be opened here.
    fn knows(&self, key: KeyId) -> bool;
}

/// The result of sealing stored values again with the current key.
#[derive(Debug, Default)]
pub struct Resealed {
    /// The number of values that were sealed again.
    pub done: usize,
    /// The errors of values that cannot be opened and stay unchanged, by their places.
    pub failed: BTreeMap<String, SealError>,
}

impl Resealed {
    /// The number of values that are sealed again at once.
    const BATCH: u32 = 100;

    /// Returns the number of values to read next. Failed values are read again each time and must not displace others.
    pub(crate) fn batch(&self) -> u32 {
        Self::BATCH.saturating_add(u32::try_from(self.failed.len()).unwrap_or(u32::MAX))
    }

    /// Returns the number of values that were processed. A batch that adds none is the last one.
    pub(crate) fn processed(&self) -> usize {
        self.done + self.failed.len()
    }

    /// Returns the value, sealed with the current key. Returns `None` and records the error if it cannot be opened.
    ///
    /// # Errors
    /// [`SealError::NoKey`] if the keys cannot be read, so no value can be opened.
    pub(crate) fn reseal_value(
        &mut self,
        sealer: &dyn Sealer,
        place: String,
        sealed: &[u8],
    ) -> Result<Option<Vec<u8>>, SealError> {
        match sealer.open(&place, sealed) {
            Ok(clear) => Ok(Some(sealer.seal(&place, clear.expose_secret())?)),
            Err(SealError::NoKey(why)) => Err(SealError::NoKey(why)),
            Err(error) => {
                self.failed.insert(place, error);
                Ok(None)
            }
        }
    }
}

impl std::ops::Add for Resealed {
    type Output = Self;

    fn add(mut self, other: Self) -> Self {
        self.failed.extend(other.failed);
        Self { done: self.done + other.done, ..self }
    }
}

/// The port that seals and opens content that does not fit into memory. Each stream has a key of its own, which a
/// [`Sealer`] seals, so that a rotation of the master key rewrites a row and not the whole content.
#[cfg_attr(feature = "mocks", mockall::automock)]
pub trait StreamSealer: Send + Sync {
    /// Returns the key of the stream, sealed in `place`, and the sealed content as a stream.
    ///
    /// # Errors
    /// [`SealError::NoKey`] if the keys cannot be read.
    fn seal(&self, place: &str, content: ByteStream) -> Result<(Vec<u8>, ByteStream), SealError>;

    /// Returns the opened content as a stream. Content that is cut or altered, or was sealed with another key, ends the
    /// stream with [`OperationError::Failed`](crate::session_operation::OperationError::Failed); everything before the
    /// error is authentic.
    ///
    /// # Errors
    /// See [`SealError`].
    fn open(&self, place: &str, key: &[u8], content: ByteStream) -> Result<ByteStream, SealError>;
}
