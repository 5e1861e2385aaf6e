//! Stores bytes outside of the database, and checks archives before they are stored.
//!
//! [`Blobs`] are in a directory of this machine ([`LocalBlobs`]) or in an S3-compatible store ([`S3Blobs`]),
//! [`OperatorBuckets`] writes objects to buckets of the operator, [`Inspector`] checks uploaded archives of extensions.
//! A stream takes a few hundred KiB of memory, or a few parts of 8 MiB while it is written to an S3-compatible store,
//! whatever its length.

mod buckets;
mod inspect;
mod local;
mod objects;
mod s3;
mod setup;
mod transport;

pub use buckets::{BucketKeys, BucketSettings, OperatorBuckets};
pub use inspect::Inspector;
pub use local::LocalBlobs;
pub use s3::{S3Blobs, S3Settings};
pub use setup::{BlobPlace, BlobSetupError, Blobs};
