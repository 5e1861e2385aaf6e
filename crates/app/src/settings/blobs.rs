//! The settings of the store of blobs.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::ensure;
use casement_blobs::{BlobPlace, S3Settings};
use clap::{Args, Subcommand};
use url::Url;

use super::Store;
use super::values::{bucket_name, plain_url};

/// The folder of the blobs in the data directory.
const BLOBS: &str = "blobs";
/// The beginning of the variables of AWS's own tools.
const AWS_VARIABLES: &str = "AWS_";
/// The beginning of the URL of a bucket.
const SCHEME: &str = "s3://";
const MAX_PREFIX_CHARS: usize = 512;

/// Where the blobs of the database are.
#[derive(Clone, Debug, Args)]
pub(crate) struct BlobSettings {
    /// The bucket of an S3-compatible store, and a prefix in it, for the stored files of all nodes: profiles,
    /// extensions, replays, apps. The credentials come from the variables of AWS's own tools [default: the directory
    /// `blobs` in the data directory]
    #[arg(long, value_name = "s3://BUCKET[/PREFIX]", env = "CASEMENT_BLOB_URL")]
    pub(crate) blob_url: Option<BucketUrl>,
    #[command(flatten)]
    pub(crate) s3: BlobS3Settings,
}

/// How an S3-compatible store is reached.
#[derive(Clone, Debug, Args)]
pub(crate) struct BlobS3Settings {
    /// The URL of the S3-compatible store with the bucket of --blob-url [default: AWS_ENDPOINT_URL_S3 or
    /// AWS_ENDPOINT_URL, else AWS]
    #[arg(long, value_name = "URL", env = "CASEMENT_BLOB_ENDPOINT", value_parser = plain_url)]
    pub(crate) blob_endpoint: Option<Url>,
    /// The region of the bucket of --blob-url [default: AWS_REGION or AWS_DEFAULT_REGION, else us-east-1]
    #[arg(long, value_name = "NAME", env = "CASEMENT_BLOB_REGION")]
    pub(crate) blob_region: Option<String>,
    /// Name the bucket of --blob-url in the path of requests, instead of in the name of the host; always so if the
    /// endpoint is an IP address
    #[arg(long, env = "CASEMENT_BLOB_PATH_STYLE")]
    pub(crate) blob_path_style: bool,
}

/// A bucket, and a prefix in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BucketUrl {
    bucket: String,
    prefix: String,
}

impl FromStr for BucketUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let rest = text.strip_prefix(SCHEME).ok_or("must be as s3://bucket or s3://bucket/prefix")?;
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let (bucket, prefix) = (bucket_name(bucket)?, prefix.trim_end_matches('/'));
        let is_plain = |part: &str| {
            let is_dots = part.bytes().all(|byte| byte == b'.');
            !is_dots && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-=".contains(&byte))
        };
        if !prefix.is_empty() && (prefix.len() > MAX_PREFIX_CHARS || !prefix.split('/').all(is_plain)) {
            return Err("the prefix may have letters, digits, points, _, -, = and single slashes".into());
        }
        Ok(Self { bucket, prefix: prefix.to_owned() })
    }
}

impl BlobSettings {
    /// Returns where the blobs of a server on this data directory are.
    ///
    /// # Errors
    /// If the settings contradict each other.
    pub(crate) fn place(&self, data_dir: &Path) -> anyhow::Result<BlobPlace> {
        match &self.blob_url {
            Some(url) => Ok(self.s3.place(url)),
            None => {
                let missing = "there is no --blob-url";
                ensure!(self.s3.blob_endpoint.is_none(), "--blob-endpoint: {missing}");
                ensure!(self.s3.blob_region.is_none(), "--blob-region: {missing}");
                ensure!(!self.s3.blob_path_style, "--blob-path-style: {missing}");
                Ok(local_place(data_dir))
            }
        }
    }
}

impl BlobS3Settings {
    fn place(&self, url: &BucketUrl) -> BlobPlace {
        BlobPlace::S3(S3Settings {
            bucket: url.bucket.clone(),
            prefix: url.prefix.clone(),
            endpoint: self.blob_endpoint.clone(),
            region: self.blob_region.clone(),
            path_style: self.blob_path_style,
            variables: std::env::vars().filter(|(name, _)| name.starts_with(AWS_VARIABLES)).collect(),
        })
    }
}

/// Returns the place of blobs in a data directory.
pub(crate) fn local_place(data_dir: &Path) -> BlobPlace {
    BlobPlace::Directory(data_dir.join(BLOBS))
}

/// A store that a command names: a bucket, or a directory.
#[derive(Clone, Debug)]
pub(crate) enum NamedStore {
    Bucket(BucketUrl),
    Directory(PathBuf),
}

impl FromStr for NamedStore {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "" => Err("must be s3://bucket[/prefix] or a directory".into()),
            _ if text.starts_with(SCHEME) => text.parse().map(Self::Bucket),
            _ if text.contains("://") => Err("must be s3://bucket[/prefix] or a directory".into()),
            _ => Ok(Self::Directory(text.into())),
        }
    }
}

impl NamedStore {
    /// Returns the place, with an absolute path.
    pub(crate) fn place(&self, s3: &BlobS3Settings) -> anyhow::Result<BlobPlace> {
        match self {
            Self::Bucket(url) => Ok(s3.place(url)),
            Self::Directory(path) => Ok(BlobPlace::Directory(std::path::absolute(path)?)),
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum BlobsCommand {
    /// Move the stored files of the database to another store
    ///
    /// Copies what is not there yet, compares what is there, and records the new store in the database when all is
    /// there. No server may run on the database. A move that was broken off continues if it is repeated; until its end
    /// the previous store is in use. Start the servers with the new store afterwards.
    Move(MoveSettings),
}

#[derive(Debug, Args)]
pub(crate) struct MoveSettings {
    /// The new store: s3://BUCKET[/PREFIX], or a directory
    #[arg(long, value_name = "STORE")]
    pub(crate) to: NamedStore,
    /// The present store [default: the directory `blobs` in the data directory]
    #[arg(long, value_name = "STORE")]
    pub(crate) from: Option<NamedStore>,
    /// Delete the files in the present store when all are in the new one
    #[arg(long)]
    pub(crate) delete_source: bool,
    #[command(flatten)]
    pub(crate) s3: BlobS3Settings,
    #[command(flatten)]
    pub(crate) store: Store,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_may_have_a_prefix_that_is_a_plain_path() {
        let read = |text: &str| text.parse::<BucketUrl>().map(|url| (url.bucket, url.prefix));
        let plain = |bucket: &str, prefix: &str| Ok((bucket.to_owned(), prefix.to_owned()));
        assert_eq!(read("s3://records"), plain("records", ""));
        assert_eq!(read("s3://records/"), plain("records", ""));
        assert_eq!(read("s3://records/a/b.c/"), plain("records", "a/b.c"));
        for bad in
            ["records", "https://records", "s3://", "s3://a", "s3://records//a", "s3://records/../a", "s3://records/ä"]
        {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
