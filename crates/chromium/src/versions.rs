//! Checks the versions of Chromium and chromedriver on this host.

use std::path::PathBuf;

use casement_sandbox::{Check, version};

use crate::config::{chromedriver, chromium};
use crate::fault::EngineSetupError;

/// The oldest supported version; `cargo xtask up` requires the same.
const MIN_VERSION: u32 = 156;

/// The version output of a program, and the major version in it; or an error for people.
type Versioned = Result<(String, u32), String>;

/// Checks that Chromium and chromedriver are installed, recent enough, and of one version.
pub async fn check() -> Vec<Check> {
    let chromium = versioned(chromium()).await;
    let mut driver = versioned(chromedriver()).await;
    if let (Ok((_, browsers)), Ok((given, drivers))) = (&chromium, &driver)
        && browsers != drivers
    {
        driver = Err(format!("{given}: it drives Chromium {drivers}, and there is {browsers}"));
    }
    let found = |name, found: Versioned, package| {
        Check::new(name, found.map(|(given, _)| given), &format!("install the package {package} of a current version"))
    };
    vec![found("Chromium", chromium, "chromium"), found("chromedriver", driver, "chromium-driver")]
}

async fn versioned(program: Result<PathBuf, EngineSetupError>) -> Versioned {
    let path = program.map_err(|error| error.to_string())?;
    let place = path.display();
    let given = version(&path).await.map_err(|error| format!("{place}: {error}"))?;
    let mut numbers = given.split(|letter: char| !letter.is_ascii_digit());
    let major = numbers.find(|part| !part.is_empty()).and_then(|part| part.parse().ok());
    match major {
        Some(major) if major >= MIN_VERSION => Ok((format!("{given} in {place}"), major)),
        Some(_) => Err(format!("{given} in {place}, which is older than {MIN_VERSION}")),
        None => Err(format!("{place} does not say its version")),
    }
}
