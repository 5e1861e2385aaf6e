//! What all browsers of an installation have in common.

use super::{BrowserRegion, Memory, MemoryBounds, TimeZone};
use crate::session::NotSupported;

/// What the operator sets for all browsers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installation {
    /// The region that records name.
    pub region: BrowserRegion,
    /// The memory limits of browsers.
    pub memory: MemoryBounds,
    /// The time zone of browsers for which none is requested.
    pub time_zone: TimeZone,
}

impl Default for Installation {
    /// Browsers of 2 GiB, and of at most 16 GiB, in the default region and in UTC.
    fn default() -> Self {
        let memory = MemoryBounds { default: Memory { mib: 2048 }, max: Memory { mib: 16_384 } };
        Self { region: BrowserRegion::default(), memory, time_zone: TimeZone::UTC }
    }
}

impl Installation {
    /// Checks that browsers can run in the requested region.
    ///
    /// # Errors
    /// [`NotSupported`] for any region but the own one.
    pub fn check_region(&self, requested: Option<BrowserRegion>) -> Result<(), NotSupported> {
        match requested {
            Some(region) if region != self.region => {
                let why = format!("this installation is in {}", self.region.as_str());
                Err(NotSupported { field: "region", why: why.into() })
            }
            _ => Ok(()),
        }
    }

    /// Returns whether a list with this filter can have entries: all browsers are in one region.
    #[must_use]
    pub fn has_region(&self, filter: Option<BrowserRegion>) -> bool {
        filter.is_none_or(|region| region == self.region)
    }
}
