//! The settings of all browsers of an installation.

use casement_domain::browser::{BrowserRegion, Installation, Memory, MemoryBounds};
use clap::Args;

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct BrowserSettings {
    /// The memory limit of a session in MiB
    #[arg(long, value_name = "MIB", env = "CASEMENT_SESSION_MEMORY", default_value_t = 2048, value_parser = clap::value_parser!(u32).range(256..=1_048_576))]
    session_memory: u32,
    /// The largest memory in MiB that a session may request [default: the memory of this machine]
    #[arg(long, value_name = "MIB", env = "CASEMENT_MAX_SESSION_MEMORY", value_parser = clap::value_parser!(u32).range(256..=1_048_576))]
    max_session_memory: Option<u32>,
    /// The region that records of sessions and pools name: us-east, us-west, eu-west or ap-southeast
    #[arg(long, value_name = "REGION", env = "CASEMENT_BROWSER_REGION", default_value = BrowserRegion::default().as_str(), value_parser = region)]
    browser_region: BrowserRegion,
}

impl BrowserSettings {
    pub(crate) fn installation(self) -> Installation {
        let default = Memory { mib: self.session_memory };
        let max = Memory { mib: self.max_session_memory.unwrap_or_else(machine_memory_mib) };
        Installation { region: self.browser_region, memory: MemoryBounds { default, max } }
    }
}

/// Returns the memory of the machine, rounded up to GiB: the kernel keeps a part of what is installed.
fn machine_memory_mib() -> u32 {
    let info = rustix::system::sysinfo();
    let mib = (info.totalram as u64).saturating_mul(info.mem_unit.into()) >> 20;
    u32::try_from(mib.div_ceil(1024) * 1024).unwrap_or(u32::MAX)
}

fn region(text: &str) -> Result<BrowserRegion, String> {
    BrowserRegion::parse(text).map_err(|bad| bad.message)
}
