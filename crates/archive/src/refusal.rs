//! The reasons why an entry must not be unpacked.

/// The maximum length of a part of a path, in bytes, as in common file systems.
pub(crate) const MAX_PART_BYTES: usize = 255;

/// The reason why an entry must not be unpacked. The text continues a sentence that begins with the entry's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EntryRefusal {
    /// The name begins with a slash, a drive letter or a network share.
    #[error("has an absolute name")]
    Absolute,
    /// The name has a part `..`, between slashes or backslashes.
    #[error("leads out of the archive")]
    LeavesArchive,
    /// The name contains a NUL.
    #[error("has a NUL in its name")]
    Nul,
    /// The name of a file is empty.
    #[error("has no name")]
    NoName,
    /// The name is marked as UTF-8, but is not valid UTF-8.
    #[error("has a name that is marked as UTF-8 but is not UTF-8")]
    NotUtf8,
    /// The name, or one of its parts, is too long.
    #[error("has too long a name: at most {0} bytes are allowed, and {MAX_PART_BYTES} between two slashes")]
    TooLong(usize),
    /// The entry is below too many directories.
    #[error("is nested too deeply: a path has at most {0} parts")]
    TooDeep(usize),
    /// Another entry has the same name.
    #[error("occurs twice")]
    Duplicate,
    /// Another entry of that name is a file or a link.
    #[error("is below a file or a link")]
    BelowFile,
    /// The number of directories that are known from the names of entries is limited.
    #[error("is one of more than {0} files and directories")]
    TooManyNames(u64),
    /// The content is encrypted.
    #[error("is encrypted")]
    Encrypted,
    /// The content is compressed with another method than deflate.
    #[error("is compressed with {name} (method {0}); only stored and deflated entries can be read", name = method_name(*.0))]
    Compression(u16),
    /// The entry is a device, a FIFO or a socket.
    #[error("is neither a file nor a directory")]
    SpecialFile,
    /// The entry is a directory, but has content.
    #[error("is a directory with content")]
    DirectoryContent,
    /// The entry is a symbolic link, and the archive may have none.
    #[error("is a symbolic link")]
    Link,
    /// The target of a link is empty or absolute.
    #[error("is a link that is not relative")]
    AbsoluteLink,
    /// The target of a link is outside of the unpacked directory.
    #[error("is a link that leads out of the archive")]
    LinkLeavesArchive,
    /// The target of a link has a `..` after a name, which could lead anywhere through another link.
    #[error("is a link with '..' behind a name")]
    LinkBehindName,
    /// The target of a link is too long.
    #[error("leads to too long a name")]
    LinkTooLong,
}

/// Returns the common name of a compression method (APPNOTE.TXT 4.4.5).
fn method_name(method: u16) -> &'static str {
    match method {
        1 => "shrink",
        2..=5 => "reduce",
        6 => "implode",
        9 => "deflate64",
        12 => "bzip2",
        14 => "lzma",
        20 | 93 => "zstd",
        95 => "xz",
        98 => "ppmd",
        _ => "another method",
    }
}
