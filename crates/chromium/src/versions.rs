//! Which Chromium and which chromedriver this host has.

use std::path::PathBuf;

use casement_sandbox::{Check, version};

use crate::config::{chromedriver, chromium};
use crate::fault::EngineSetupError;

/// The oldest that is known to do all that is promised; `cargo xtask up` asks for the same.
const LEAST: u32 = 156;

/// What a program says of itself, and the number of Chromium's version in that.
type Versioned = Result<(String, u32), String>;

/// Whether Chromium and its driver are there, recent enough, and of one version.
pub async fn check() -> Vec<Check> {
    let chromium = versioned(chromium()).await;
    let mut driver = versioned(chromedriver()).await;
    if let (Ok((_, browsers)), Ok((said, drivers))) = (&chromium, &driver)
        && browsers != drivers
    {
        driver = Err(format!("{said}: it drives Chromium {drivers}, and there is {browsers}"));
    }
    let found = |name, found: Versioned, package| {
        Check::new(name, found.map(|(said, _)| said), &format!("install the package {package} of a current version"))
    };
    vec![found("Chromium", chromium, "chromium"), found("chromedriver", driver, "chromium-driver")]
}

async fn versioned(program: Result<PathBuf, EngineSetupError>) -> Versioned {
    let path = program.map_err(|error| error.to_string())?;
    let place = path.display();
    let said = version(&path).await.map_err(|error| format!("{place}: {error}"))?;
    let mut numbers = said.split(|letter: char| !letter.is_ascii_digit());
    let major = numbers.find(|part| !part.is_empty()).and_then(|part| part.parse().ok());
    match major {
        Some(major) if major >= LEAST => Ok((format!("{said} in {place}"), major)),
        Some(_) => Err(format!("{said} in {place}, which is older than {LEAST}")),
        None => Err(format!("{place} does not say its version")),
    }
}
