//! Where the blobs are, and the store there.

use std::path::PathBuf;
use std::sync::Arc;

use casement_domain::blob::{BlobError, BlobStore, StoreMark};
use tokio_rustls::rustls;

use crate::local::{LocalBlobs, LocalFaults};
use crate::objects;
use crate::s3::{S3Blobs, S3Settings};

/// The reason why a store cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BlobSetupError {
    /// The directory cannot be created.
    #[error("{directory}: {source}")]
    Directory {
        /// The directory.
        directory: String,
        /// The error.
        source: std::io::Error,
    },
    /// The settings of the store contradict each other.
    #[error("{location}: {source}")]
    Store {
        /// The place.
        location: String,
        /// The error.
        source: object_store::Error,
    },
    /// TLS cannot be set up.
    #[error("TLS cannot be set up: {0}")]
    Tls(#[from] rustls::Error),
}

/// Where blobs are.
#[derive(Clone, Debug)]
pub enum BlobPlace {
    /// A directory of this machine.
    Directory(PathBuf),
    /// A bucket of an S3-compatible store, or a part of it.
    S3(S3Settings),
}

/// An opened store.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "a process has one")]
pub enum Blobs {
    /// A directory of this machine.
    Local(LocalBlobs),
    /// A bucket of an S3-compatible store, or a part of it.
    S3(S3Blobs),
}

impl Blobs {
    /// Opens the store. Only a directory is accessed, and created if it is missing.
    ///
    /// # Errors
    /// See [`BlobSetupError`].
    pub fn open(place: &BlobPlace) -> Result<Self, BlobSetupError> {
        match place {
            BlobPlace::Directory(directory) => LocalBlobs::open(directory).map(Self::Local),
            BlobPlace::S3(settings) => S3Blobs::new(settings).map(Self::S3),
        }
    }

    /// Returns the store as the port of the domain.
    #[must_use]
    pub fn port(&self) -> Arc<dyn BlobStore> {
        match self {
            Self::Local(blobs) => Arc::new(blobs.clone()),
            Self::S3(blobs) => Arc::new(blobs.clone()),
        }
    }

    /// Returns where the store is, for people.
    #[must_use]
    pub fn location(&self) -> String {
        match self {
            Self::Local(blobs) => blobs.directory().display().to_string(),
            Self::S3(blobs) => blobs.location().to_owned(),
        }
    }

    /// Reads the mark of the store; `None` if it has none.
    ///
    /// # Errors
    /// See [`BlobError`].
    pub async fn mark(&self) -> Result<Option<StoreMark>, BlobError> {
        match self {
            Self::Local(blobs) => objects::mark(blobs.store(), &LocalFaults).await,
            Self::S3(blobs) => objects::mark(blobs.store(), blobs.faults()).await,
        }
    }

    /// Writes the mark of the store unless it has one, which must be read afterwards.
    ///
    /// # Errors
    /// See [`BlobError`].
    pub async fn create_mark(&self, mark: &StoreMark) -> Result<(), BlobError> {
        match self {
            Self::Local(blobs) => objects::create_mark(blobs.store(), &LocalFaults, mark).await,
            Self::S3(blobs) => objects::create_mark(blobs.store(), blobs.faults(), mark).await,
        }
    }

    /// Removes the mark of a store whose blobs are in another one from now on.
    ///
    /// # Errors
    /// See [`BlobError`].
    pub async fn remove_mark(&self) -> Result<(), BlobError> {
        match self {
            Self::Local(blobs) => objects::remove_mark(blobs.store(), &LocalFaults).await,
            Self::S3(blobs) => objects::remove_mark(blobs.store(), blobs.faults()).await,
        }
    }
}
