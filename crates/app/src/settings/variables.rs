//! Variables of the environment that look like settings of this program and are none.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io::Write as _;

use casement_domain::misspelling::is_misspelling;
use clap::Command;

const PREFIX: &str = "CASEMENT_";
/// Sets what is logged. No flag has it.
const LOG: &str = "CASEMENT_LOG";
/// The variables of this program's own tests.
const OF_TESTS: &str = "CASEMENT_TEST_";

/// Writes a line about each variable that no setting has, to standard error: a misspelt one would have no effect in
/// silence. Unless `all`, only of those that resemble a setting: a client's environment has variables of other programs.
///
/// # Errors
/// If the commands cannot be listed.
pub(super) fn report_unknown(commands: &Command, all: bool) -> anyhow::Result<()> {
    let mut known = variables_of(commands);
    if unknown(&known, std::env::vars_os()).is_empty() {
        return Ok(());
    }
    // The settings of the other commands, which this one does not have.
    known.extend(variables_of(&super::commands(None)?));
    for (name, meant) in unknown(&known, std::env::vars_os()) {
        let _ = match meant {
            Some(meant) => {
                writeln!(std::io::stderr(), "casement: no setting has the variable {name}; did you mean {meant}?")
            }
            None if all => {
                writeln!(std::io::stderr(), "casement: no setting has the variable {name}; it has no effect")
            }
            None => Ok(()),
        };
    }
    Ok(())
}

/// Returns the variables of a command's flags and of those below it.
fn variables_of(command: &Command) -> BTreeSet<String> {
    let own = command.get_arguments().filter_map(|flag| flag.get_env()?.to_str().map(ToOwned::to_owned));
    own.chain(command.get_subcommands().flat_map(variables_of)).chain([LOG.to_owned()]).collect()
}

/// Returns the variables that are not known, with the known one that each resembles.
fn unknown(known: &BTreeSet<String>, set: impl Iterator<Item = (OsString, OsString)>) -> Vec<(String, Option<&str>)> {
    let strange = set.filter_map(|(name, value)| {
        let name = name.into_string().ok()?;
        let is_strange = name.starts_with(PREFIX) && !name.starts_with(OF_TESTS) && !known.contains(&name);
        (is_strange && !is_of_kubernetes(&name, &value)).then_some(name)
    });
    let with_meant = strange.map(|name| {
        let meant = known.iter().find(|one| is_misspelling(&name, one)).map(String::as_str);
        (name, meant)
    });
    with_meant.collect()
}

/// Returns whether Kubernetes sets the variable in pods beside a service that is called `casement`.
fn is_of_kubernetes(name: &str, value: &OsStr) -> bool {
    let value = value.to_string_lossy();
    name.contains("_SERVICE_")
        || name.contains("_PORT_")
        || ["tcp://", "udp://"].iter().any(|start| value.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_variables_are_found_with_the_setting_they_resemble() {
        let known = variables_of(&crate::settings::commands(None).expect("the API has all operations"));
        let set = [
            ("CASEMENT_LISTEN", "127.0.0.1:1"),
            ("CASEMENT_LOG", "debug"),
            ("CASEMENT_URL", "http://x"),
            ("CASEMENT_PUBLIC_URI", "http://x"),
            ("CASEMENT_DATABSE_URL", "x"),
            ("CASEMENT_WIDGETS", "1"),
            ("CASEMENT_TEST_NODES", "3"),
            ("CASEMENT_PORT", "tcp://10.0.0.1:80"),
            ("CASEMENT_NODES_SERVICE_HOST", "10.0.0.1"),
            ("CASEMENT_PORT_80_TCP_ADDR", "10.0.0.1"),
            ("PATH", "/bin"),
        ];

        let found = unknown(&known, set.iter().map(|(name, value)| (name.into(), value.into())));

        let found: Vec<_> = found.iter().map(|(name, meant)| (name.as_str(), *meant)).collect();
        assert_eq!(
            found,
            [
                ("CASEMENT_PUBLIC_URI", Some("CASEMENT_PUBLIC_URL")),
                ("CASEMENT_DATABSE_URL", Some("CASEMENT_DATABASE_URL")),
                ("CASEMENT_WIDGETS", None),
            ]
        );
    }
}
