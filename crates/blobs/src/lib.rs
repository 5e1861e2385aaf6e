//! Stores bytes outside of the database, and checks archives before they are stored.
//!
//! [`LocalBlobs`] stores blobs in a directory of this machine, [`OperatorBuckets`] writes objects to buckets of the operator,
//! [`Inspector`] checks uploaded archives of extensions.
//! Both have a few hundred KiB of a stream in memory, whatever its length.

mod buckets;
mod inspect;
mod local;

pub use buckets::{BucketKeys, BucketSettings, OperatorBuckets};
pub use inspect::Inspector;
pub use local::{BlobSetupError, LocalBlobs};
