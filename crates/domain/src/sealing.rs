//! Secrets that must be read again in clear: sealed before they are stored, opened where they are needed.

use std::collections::BTreeMap;

use secrecy::{ExposeSecret as _, SecretSlice};

use crate::session_operation::ByteStream;

/// Sealing or opening failed. It says nothing of what was inside.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// The keys cannot be read.
    #[error("the master key cannot be read: {0}")]
    NoKey(String),
    /// It was sealed under a key that is not there.
    #[error("sealed under the key {0}, which is not there")]
    UnknownKey(String),
    /// It is not what was sealed in that place: cut, altered, or moved from elsewhere.
    #[error("the sealed value is damaged or does not belong here")]
    Damaged,
}

/// Under which key something is sealed; says nothing of the key itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyId(pub [u8; 8]);

impl std::fmt::Display for KeyId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl KeyId {
    /// What every sealed value begins with, before its key's id: the form it has.
    pub const FORM: u8 = 1;

    /// Under which key a value is sealed, if it has a form that is known.
    #[must_use]
    pub fn of(sealed: &[u8]) -> Option<Self> {
        match sealed {
            [Self::FORM, rest @ ..] => rest.first_chunk().copied().map(Self),
            _ => None,
        }
    }
}

/// Seals and opens. What is sealed in one place opens in that place only: `place` names it, `proxies/<id>/password`, and is
/// checked, not stored. The same value sealed twice gives different bytes.
pub trait Sealer: Send + Sync {
    /// Seals under the key that is in force.
    ///
    /// # Errors
    /// [`SealError::NoKey`].
    fn seal(&self, place: &str, plain: &[u8]) -> Result<Vec<u8>, SealError>;

    /// What is inside.
    ///
    /// # Errors
    /// See [`SealError`].
    fn open(&self, place: &str, sealed: &[u8]) -> Result<SecretSlice<u8>, SealError>;

    /// The key that is in force.
    ///
    /// # Errors
    /// [`SealError::NoKey`].
    fn current(&self) -> Result<KeyId, SealError>;
}

/// What sealing anew has come to, under the key in force.
#[derive(Debug, Default)]
pub struct Resealed {
    /// How many values.
    pub done: usize,
    /// What cannot be opened and stays as it is, by the places where it was sealed.
    pub failed: BTreeMap<String, SealError>,
}

impl Resealed {
    /// Values are sealed anew so many at a time.
    const BATCH: u32 = 100;

    /// How many values to ask for: those that failed before come again, and must not hide the others.
    pub(crate) fn batch(&self) -> u32 {
        Self::BATCH.saturating_add(u32::try_from(self.failed.len()).unwrap_or(u32::MAX))
    }

    /// How many values were looked at. Once a batch adds none, there are no others.
    pub(crate) fn looked_at(&self) -> usize {
        self.done + self.failed.len()
    }

    /// The value, sealed under the key in force; none if it cannot be opened, which is noted.
    ///
    /// # Errors
    /// [`SealError::NoKey`]: nothing can be opened.
    pub(crate) fn anew(
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

/// Seals and opens what is too long to be in memory. Each stream has a key of its own, itself sealed by a [`Sealer`]: so that another
/// master key costs a row, not the whole content.
#[cfg_attr(feature = "mocks", mockall::automock)]
pub trait StreamSealer: Send + Sync {
    /// The stream's key, sealed in `place`, and the content as it is sealed on its way.
    ///
    /// # Errors
    /// [`SealError::NoKey`].
    fn seal(&self, place: &str, content: ByteStream) -> Result<(Vec<u8>, ByteStream), SealError>;

    /// What is inside, as it is opened on its way. Content that is cut or altered, or was sealed under another key, ends the stream with
    /// [`OperationError::Failed`](crate::session_operation::OperationError::Failed), and nothing of it came before that is not true.
    ///
    /// # Errors
    /// See [`SealError`].
    fn open(&self, place: &str, key: &[u8], content: ByteStream) -> Result<ByteStream, SealError>;
}
