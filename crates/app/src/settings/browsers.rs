//! The settings of all browsers of an installation.

use std::fs;
use std::path::Path;

use casement_domain::browser::{BrowserRegion, Installation, Memory, MemoryBounds, TimeZone};
use casement_sandbox::OwnGroups;
use clap::Args;

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct BrowserSettings {
    /// The memory limit of a session in MiB
    #[arg(long, value_name = "MIB", env = "CASEMENT_SESSION_MEMORY", default_value_t = 2048, value_parser = clap::value_parser!(u32).range(256..=1_048_576))]
    session_memory: u32,
    /// The largest memory in MiB that a session may request [default: the memory of this machine or container]
    #[arg(long, value_name = "MIB", env = "CASEMENT_MAX_SESSION_MEMORY", value_parser = clap::value_parser!(u32).range(256..=1_048_576))]
    max_session_memory: Option<u32>,
    /// The label of this installation that records of sessions and pools name as their region: us-east, us-west, eu-west or
    /// ap-southeast, which are those that clients know. It does not say where the machine is
    #[arg(long, value_name = "REGION", env = "CASEMENT_BROWSER_REGION", default_value = BrowserRegion::default().as_str(), value_parser = region)]
    browser_region: BrowserRegion,
}

impl BrowserSettings {
    pub(crate) fn installation(self) -> Installation {
        let default = Memory { mib: self.session_memory };
        let max = Memory { mib: self.max_session_memory.unwrap_or_else(machine_memory_mib) };
        Installation {
            region: self.browser_region,
            memory: MemoryBounds { default, max },
            time_zone: machine_time_zone(),
        }
    }
}

/// Returns the memory of the machine, rounded up to GiB because the kernel keeps a part of what is installed; in a control
/// group, at most its limit.
pub(crate) fn machine_memory_mib() -> u32 {
    let info = rustix::system::sysinfo();
    let installed = (info.totalram.saturating_mul(info.mem_unit.into()) >> 20).div_ceil(1024) * 1024;
    let mib = OwnGroups::find().memory_bytes().map_or(installed, |bytes| (bytes >> 20).min(installed));
    u32::try_from(mib).unwrap_or(u32::MAX)
}

/// Returns the time zone of the machine; UTC if the machine does not name it.
fn machine_time_zone() -> TimeZone {
    time_zone_of(Path::new("/etc"))
}

fn time_zone_of(etc: &Path) -> TimeZone {
    let linked = fs::canonicalize(etc.join("localtime")).unwrap_or_default();
    let linked = linked.to_str().and_then(|path| path.split_once("/zoneinfo/")).map(|(_, name)| name.to_owned());
    let written = || fs::read_to_string(etc.join("timezone")).ok();
    let name = linked.or_else(written).unwrap_or_default();
    TimeZone::parse(name.trim()).unwrap_or(TimeZone::UTC)
}

fn region(text: &str) -> Result<BrowserRegion, String> {
    BrowserRegion::parse(text).map_err(|bad| bad.message)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn the_time_zone_of_the_machine_is_linked_or_written_and_else_utc() -> anyhow::Result<()> {
        let etc = tempfile::tempdir()?;
        assert_eq!(time_zone_of(etc.path()), TimeZone::UTC);
        fs::write(etc.path().join("timezone"), "Asia/Tokyo\n")?;
        assert_eq!(time_zone_of(etc.path()).as_str(), "Asia/Tokyo");
        let zone = etc.path().join("zoneinfo/Europe/Berlin");
        fs::create_dir_all(zone.parent().expect("a folder"))?;
        fs::write(&zone, "")?;
        symlink(&zone, etc.path().join("localtime"))?;
        assert_eq!(time_zone_of(etc.path()).as_str(), "Europe/Berlin");
        Ok(())
    }
}
