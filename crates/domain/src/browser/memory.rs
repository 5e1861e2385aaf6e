//! The memory limits of browsers.

use crate::field::{FieldCode, InvalidValue};
use crate::not_supported::NotSupported;

/// The sizes that the API names, with their mebibytes.
const NAMED: [(&str, u32); 7] = [
    ("1GiB", 1024),
    ("2GiB", 2048),
    ("4GiB", 4096),
    ("6GiB", 6144),
    ("8GiB", 8192),
    ("12GiB", 12_288),
    ("16GiB", 16_384),
];
/// The sizes that a request may name.
const REQUESTABLE: [&str; 5] = ["1GiB", "2GiB", "4GiB", "8GiB", "16GiB"];

/// A memory limit of a browser's processes. The files of its session are limited apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Memory {
    /// The limit in mebibytes.
    pub mib: u32,
}

impl Memory {
    /// Parses a requested size.
    ///
    /// # Errors
    /// `not_allowed` for anything but 1GiB, 2GiB, 4GiB, 8GiB and 16GiB.
    pub fn parse(text: &str) -> Result<Self, InvalidValue> {
        let found = NAMED.iter().find(|(name, _)| *name == text && REQUESTABLE.contains(name));
        found.map(|(_, mib)| Self { mib: *mib }).ok_or_else(|| {
            InvalidValue::new(FieldCode::NotAllowed, format!("must be one of {}", REQUESTABLE.join(", ")))
        })
    }

    /// Returns the name of the limit in the API: the largest named size that it reaches, and `1GiB` below that.
    #[must_use]
    pub fn name(self) -> &'static str {
        NAMED.iter().rev().find(|(_, mib)| *mib <= self.mib).unwrap_or(&NAMED[0]).0
    }

    /// Returns the limit in bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        (self.mib as u64) << 20
    }
}

/// The memory of a browser, and what it takes of the limits of sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReservedMemory {
    /// The memory limit.
    pub limit: Memory,
    /// The number of sessions of the default size that it counts as in the limits of sessions; at least 1.
    pub places: u32,
}

/// The memory limits that a node gives to browsers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryBounds {
    /// The limit of a browser for which none is requested.
    pub default: Memory,
    /// The largest limit.
    pub max: Memory,
}

impl MemoryBounds {
    /// Returns the memory of a browser for which none is requested.
    #[must_use]
    pub const fn reserve_default(&self) -> ReservedMemory {
        ReservedMemory { limit: self.default, places: 1 }
    }

    /// Returns the memory of a browser of the requested size.
    ///
    /// # Errors
    /// [`NotSupported`] if the node never gives as much.
    pub fn reserve(&self, limit: Memory) -> Result<ReservedMemory, NotSupported> {
        if limit > self.max.max(self.default) {
            let why = format!("max_session_memory of this node is {} MiB", self.max.mib);
            return Err(NotSupported { field: "memory", why: why.into() });
        }
        Ok(ReservedMemory { limit, places: limit.mib.div_ceil(self.default.mib.max(1)).max(1) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_named_by_the_largest_size_that_it_reaches() {
        for (mib, name) in
            [(256, "1GiB"), (1024, "1GiB"), (2047, "1GiB"), (3000, "2GiB"), (6144, "6GiB"), (99_999, "16GiB")]
        {
            assert_eq!(Memory { mib }.name(), name, "{mib}");
        }
    }

    #[test]
    fn only_the_sizes_of_the_api_can_be_requested() {
        assert_eq!(Memory::parse("8GiB"), Ok(Memory { mib: 8192 }));
        for bad in ["", "6GiB", "12GiB", "3GiB", "4gib", "4096"] {
            assert_eq!(Memory::parse(bad).expect_err(bad).code, FieldCode::NotAllowed, "{bad}");
        }
    }

    #[test]
    fn a_browser_counts_as_its_multiple_of_the_default_size() {
        let bounds = MemoryBounds { default: Memory { mib: 2048 }, max: Memory { mib: 8192 } };
        for (mib, places) in [(1024, 1), (2048, 1), (4096, 2), (8192, 4)] {
            let reserved = bounds.reserve(Memory { mib }).expect("within the maximum");
            assert_eq!(reserved.places, places, "{mib}");
        }
        let refused = bounds.reserve(Memory { mib: 16_384 }).expect_err("more than the maximum");
        assert_eq!(refused.to_string(), "memory: max_session_memory of this node is 8192 MiB");
    }

    #[test]
    fn the_default_size_is_given_even_above_the_maximum() {
        let bounds = MemoryBounds { default: Memory { mib: 3000 }, max: Memory { mib: 2000 } };
        assert_eq!(bounds.reserve(Memory { mib: 3000 }).map(|reserved| reserved.limit.mib), Ok(3000));
    }
}
