//! The configuration file: the flags of `casement serve` as keys of one TOML file.
//!
//! A value of the file becomes the default of the flag of that name, in every command with this flag. So flags and
//! variables take precedence, and the flag's own parser reports invalid values.

use std::any::TypeId;
use std::fs::File;
use std::io::Read as _;
use std::num::NonZeroU32;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use casement_domain::misspelling::is_misspelling;
use clap::{Arg, ArgAction, Command};
use toml::de::{DeTable, DeValue};

/// The longest configuration file, in bytes.
const MAX_FILE_BYTES: u64 = 1024 * 1024;
const NAME: &str = "casement/casement.toml";

/// Returns the file to read: the named one, or the one at the default path, if it exists.
pub(crate) fn find(named: Option<PathBuf>) -> Option<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let usual = || {
        let folder = match rustix::process::geteuid().is_root() {
            true => PathBuf::from("/etc"),
            false => variable("XDG_CONFIG_HOME").or_else(|| variable("HOME").map(|home| home.join(".config")))?,
        };
        Some(folder.join(NAME)).filter(|path| path.exists())
    };
    named.or_else(usual)
}

/// Sets the values of the file as the defaults of the commands' flags.
///
/// # Errors
/// If the file cannot be read, is not TOML, has a key that is not a flag of `casement serve` or an invalid value, or
/// contains a secret while others may read it. Every error names the line; none shows a value.
pub(crate) fn apply(path: &Path, commands: Command) -> anyhow::Result<Command> {
    let (text, is_private) = read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let serve = commands.find_subcommand("serve").context("there is no command to configure")?;
    let flags: Vec<&Arg> = serve.get_arguments().collect();
    let entries = entries(&text, &flags, is_private).map_err(|InvalidEntry { at, what }| {
        let line = text[..at.min(text.len())].matches('\n').count() + 1;
        anyhow::anyhow!("{}:{line}: {what}", path.display())
    })?;
    Ok(with_defaults(commands, &entries))
}

/// Returns the key of a flag.
pub(crate) fn key_of(flag: &Arg) -> Option<String> {
    flag.get_long().map(|long| long.replace('-', "_"))
}

/// The default value of a flag.
struct Entry {
    key: String,
    values: Vec<String>,
}

/// An invalid entry of the file.
struct InvalidEntry {
    /// The offset of the entry in the file, in bytes.
    at: usize,
    what: String,
}

/// Reads the file. Also returns whether only its owner may read or change it.
fn read(path: &Path) -> anyhow::Result<(String, bool)> {
    let file = File::open(path)?;
    let mode = file.metadata()?.permissions().mode();
    let mut text = String::new();
    if file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text)? > usize::try_from(MAX_FILE_BYTES)? {
        bail!("it is longer than {MAX_FILE_BYTES} bytes");
    }
    Ok((text, mode & 0o077 == 0))
}

fn entries(text: &str, flags: &[&Arg], is_private: bool) -> Result<Vec<Entry>, InvalidEntry> {
    // The error's own text shows the line, which may contain a secret.
    let table = DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        InvalidEntry { at, what: unquoted(text, at, flags).unwrap_or_else(|| error.message().to_owned()) }
    })?;
    let mut entries = Vec::new();
    for (key, value) in table.get_ref() {
        let at = key.span().start;
        let wrong = |what: &str| InvalidEntry { at, what: format!("{}: {what}", key.get_ref()) };
        let flag = flags.iter().find(|flag| key_of(flag).as_deref() == Some(key.get_ref()));
        let flag = flag.ok_or_else(|| wrong(&no_such_option(key.get_ref(), value.get_ref(), flags)))?;
        // A value that the help hides is a secret.
        if flag.is_hide_env_values_set() && !is_private {
            return Err(wrong("is a secret, and others may read this file: chmod 600 it"));
        }
        let values = values(flag, value.get_ref()).map_err(|what| wrong(&what))?;
        entries.push(Entry { key: key.get_ref().to_string(), values });
    }
    Ok(entries)
}

/// Returns what is wrong with a key that no flag has.
fn no_such_option(key: &str, value: &DeValue<'_>, flags: &[&Arg]) -> String {
    if matches!(value, DeValue::Table(_)) {
        return format!("the file has no sections: write its options without [{key}]");
    }
    let meant = flags.iter().filter_map(|flag| key_of(flag)).find(|name| is_misspelling(key, name));
    let question = meant.map(|name| format!("; did you mean {name}?")).unwrap_or_default();
    format!("there is no such option{question}")
}

/// Returns what is wrong with the line at this place, if it sets an option to a text without quotes.
fn unquoted(text: &str, at: usize, flags: &[&Arg]) -> Option<String> {
    let start = text.get(..at)?.rfind('\n').map_or(0, |end| end + 1);
    let (key, value) = text[start..].lines().next()?.split_once('=')?;
    let (key, value) = (key.trim(), value.split(" #").next()?.trim());
    let flag = flags.iter().find(|flag| key_of(flag).as_deref() == Some(key))?;
    if value.starts_with(['"', '\'', '[', '{']) || value.is_empty() {
        return None;
    }
    let what = match flag.get_action() {
        ArgAction::SetTrue => FLAG.to_owned(),
        ArgAction::Append => LIST.to_owned(),
        _ => match whole_number(flag) {
            Some(what) => what,
            None => QUOTES.to_owned(),
        },
    };
    Some(format!("{key}: {what}"))
}

const FLAG: &str = "must be true or false, without quotes";
const LIST: &str = "must be a list of texts in quotes, as [\"…\", \"…\"]";
const QUOTES: &str = "write the value in quotes, as \"…\"";

/// Returns what the value of a flag must be that takes whole numbers only.
fn whole_number(flag: &Arg) -> Option<String> {
    let parsed = flag.get_value_parser().type_id();
    let of = [TypeId::of::<u16>(), TypeId::of::<u32>(), TypeId::of::<u64>(), TypeId::of::<NonZeroU32>()];
    let unit = match flag.get_value_names().and_then(<[_]>::first).map(|name| name.as_str()) {
        Some("SECONDS") => " of seconds",
        Some("MIB") => " of MiB",
        _ => "",
    };
    of.iter().any(|number| parsed == *number).then(|| format!("must be a whole number{unit}"))
}

/// Converts a value to the flag's text form.
fn values(flag: &Arg, value: &DeValue<'_>) -> Result<Vec<String>, String> {
    match (flag.get_action(), value) {
        (ArgAction::SetTrue, DeValue::Boolean(on)) => Ok(vec![on.to_string()]),
        (ArgAction::SetTrue, _) => Err(FLAG.to_owned()),
        (ArgAction::Append, DeValue::Array(list)) => {
            list.iter().map(|value| scalar_text(flag, value.get_ref())).collect::<Result<_, _>>()
        }
        (ArgAction::Append, _) => Err(LIST.to_owned()),
        (_, DeValue::Array(_)) => Err("must be one value, not a list".to_owned()),
        (_, value) => Ok(vec![scalar_text(flag, value)?]),
    }
}

fn scalar_text(flag: &Arg, value: &DeValue<'_>) -> Result<String, String> {
    let word = match value {
        DeValue::String(text) => text.to_string(),
        DeValue::Integer(number) if number.radix() == 10 => number.as_str().to_owned(),
        DeValue::Float(number) if flag.get_value_parser().type_id() == TypeId::of::<f64>() => {
            number.as_str().to_owned()
        }
        DeValue::Array(_) | DeValue::Table(_) => return Err("must be one value".to_owned()),
        _ => return Err(whole_number(flag).unwrap_or_else(|| QUOTES.to_owned())),
    };
    if let Some(what) = whole_number(flag).filter(|_| word.parse::<u64>().is_err()) {
        return Err(what);
    }
    let alone = Command::new("flag").no_binary_name(true).disable_help_flag(true).arg((*flag).clone());
    let argument = format!("--{}={word}", flag.get_long().unwrap_or_default());
    match alone.try_get_matches_from([argument]) {
        Ok(_) => Ok(word),
        Err(error) => Err(std::error::Error::source(&error)
            .map_or_else(|| "this value is not possible".to_owned(), ToString::to_string)),
    }
}

fn with_defaults(command: Command, entries: &[Entry]) -> Command {
    let command = command.mut_args(|flag| {
        let key = key_of(&flag);
        match entries.iter().find(|entry| Some(&entry.key) == key.as_ref()) {
            Some(entry) => flag.default_values(&entry.values),
            None => flag,
        }
    });
    command.mut_subcommands(|command| with_defaults(command, entries))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};

    use casement_domain::organization::Organization;
    use clap::ArgMatches;

    use super::*;
    use crate::settings::{Command as CliCommand, CommandLine, KeysCommand, ServeSettings, commands};

    const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/examples/casement.toml");

    struct Written {
        path: PathBuf,
        _folder: tempfile::TempDir,
    }

    fn written(text: &str, mode: u32) -> Written {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("casement.toml");
        fs::write(&path, text).expect("written");
        fs::set_permissions(&path, Permissions::from_mode(mode)).expect("permissions");
        Written { path, _folder: folder }
    }

    /// Removes the variables, which would take precedence over the file.
    fn without_variables(command: Command) -> Command {
        command.mut_args(|flag| flag.env(None::<&str>)).mut_subcommands(without_variables)
    }

    fn matches(text: &str, words: &[&str]) -> ArgMatches {
        let file = written(text, 0o600);
        let commands = apply(&file.path, without_variables(all_commands())).expect("a good file");
        commands.try_get_matches_from([&["casement"], words].concat()).expect("good words")
    }

    fn command(text: &str, words: &[&str]) -> CliCommand {
        match CommandLine::from_matches(&matches(text, words)).expect("settings") {
            CommandLine::Own(command) => *command,
            CommandLine::Api(name, _) => panic!("{name} drives a server"),
        }
    }

    fn all_commands() -> Command {
        commands(Some("keys")).expect("the API has all operations")
    }

    fn serve(text: &str, words: &[&str]) -> ServeSettings {
        match command(text, &[&["serve"], words].concat()) {
            CliCommand::Serve(settings) => *settings,
            other => panic!("{other:?}"),
        }
    }

    fn refusal(text: &str, mode: u32) -> String {
        let file = written(text, mode);
        let error = apply(&file.path, all_commands()).expect_err("a bad file");
        format!("{error:#}").replace(&file.path.display().to_string(), "FILE")
    }

    #[test]
    fn the_file_sets_defaults_of_flags() {
        let text = "listen = \"127.0.0.1:9\"\naudit_days = 7\nno_default_pool = true\negress_allow = [\"10.0.0.0/8\", \"intranet\"]\n";

        let file = serve(text, &[]);
        assert_eq!((file.listen.port(), file.audit_days, file.no_default_pool), (9, 7, true));
        assert_eq!(file.egress_allow.len(), 2);

        let flags = serve(text, &["--listen", "127.0.0.1:10", "--egress-allow", "other"]);
        assert_eq!((flags.listen.port(), flags.audit_days, flags.egress_allow.len()), (10, 7, 1));
    }

    #[test]
    fn unset_limits_stay_unchanged() {
        let text = "max_concurrent_sessions = 200\nmax_pooled_sessions = 0\nmax_profiles = 3\n";
        let limits = serve(text, &["--max-proxies", "4"]).limits;
        let caps = limits.caps(Organization::DEFAULT_CAPS);
        assert_eq!((caps.concurrent_sessions, caps.pooled_sessions), (Some(200), None));
        assert_eq!(caps.concurrent_invocations, Organization::DEFAULT_CAPS.concurrent_invocations);
        assert_eq!((limits.max_profiles, limits.max_proxies, limits.max_pools), (3, 4, 100));
    }

    #[test]
    fn an_allowed_host_is_only_a_host() {
        let allowed = serve("allowed_host = [\"Casement.Internal\", \"[fd00::1]:8443\"]\n", &[]).allowed_hosts;
        assert_eq!(allowed, ["casement.internal", "[fd00::1]:8443"]);
        for bad in ["http://casement.internal", "a/b", "u@casement.internal", "casement.internal:", "*"] {
            let words = ["casement", "serve", "--allowed-host", bad];
            let parsed = without_variables(all_commands()).try_get_matches_from(words);
            assert!(parsed.is_err(), "{bad}");
        }
    }

    #[test]
    fn variables_override_the_file() {
        let file = written("spares = 7\n", 0o600);
        let commands = without_variables(all_commands())
            // PATH is set wherever tests run; its value is not a number.
            .mut_subcommand("serve", |serve| serve.mut_arg("spares", |flag| flag.env("PATH")));
        let error = apply(&file.path, commands).expect("a good file").try_get_matches_from(["casement", "serve"]);
        let text = error.expect_err("the variable is read").to_string();
        assert!(text.contains("--spares"), "{text}");
    }

    #[test]
    fn commands_with_the_same_flag_share_its_value() {
        let text = "data_dir = \"/somewhere\"\ndatabase_url = \"postgres://u:p@h/d\"\nspares = 3\n";
        let CliCommand::Keys(KeysCommand::List { store }) = command(text, &["keys", "list"]) else {
            panic!("another command")
        };
        assert_eq!(store.database_url.as_deref(), Some("postgres://u:p@h/d"));
        assert_eq!(store.data_dir.path().expect("a path"), Path::new("/somewhere"));
        let CliCommand::Stop(stop) = command(text, &["stop"]) else { panic!("another command") };
        assert_eq!(stop.store.database_url.as_deref(), Some("postgres://u:p@h/d"));
        assert_eq!(stop.store.data_dir.path().expect("a path"), Path::new("/somewhere"));
    }

    const LIST_REFUSED: &str = "FILE:1: egress_allow: must be a list of texts in quotes, as [\"…\", \"…\"]";

    #[test]
    fn errors_name_the_line_but_not_the_value() {
        for (text, expected) in [
            ("spares = 1\n\nlisten_on = 1\n", "FILE:3: listen_on: there is no such option"),
            ("audit-day = 1\n", "FILE:1: audit-day: there is no such option; did you mean audit_days?"),
            ("databse_url = \"x\"\n", "FILE:1: databse_url: there is no such option; did you mean database_url?"),
            ("[serve]\nspares = 1\n", "FILE:1: serve: the file has no sections: write its options without [serve]"),
            ("config = \"x\"\n", "FILE:1: config: there is no such option"),
            ("audit_days = 0\n", "FILE:1: audit_days: 0 is not in 1..=36500"),
            ("audit_days = 1.5\n", "FILE:1: audit_days: must be a whole number"),
            ("audit_days = 7 days\n", "FILE:1: audit_days: must be a whole number"),
            ("drain_deadline = \"30s\"\n", "FILE:1: drain_deadline: must be a whole number of seconds"),
            ("session_memory = 2GiB\n", "FILE:1: session_memory: must be a whole number of MiB"),
            ("session_memory = -1\n", "FILE:1: session_memory: must be a whole number of MiB"),
            ("spares = true\n", "FILE:1: spares: must be a whole number"),
            ("no_default_pool = 1\n", "FILE:1: no_default_pool: must be true or false, without quotes"),
            ("no_default_pool = yes\n", "FILE:1: no_default_pool: must be true or false, without quotes"),
            ("no_default_pool = \"true\"\n", "FILE:1: no_default_pool: must be true or false, without quotes"),
            ("egress_allow = \"10.0.0.0/8\"\n", LIST_REFUSED),
            ("egress_allow = 10.0.0.0/8\n", LIST_REFUSED),
            ("listen = 127.0.0.1:8080\n", "FILE:1: listen: write the value in quotes, as \"…\""),
            ("\nlisten = 127.0\n", "FILE:2: listen: write the value in quotes, as \"…\""),
            ("listen = [\"127.0.0.1:8080\"]\n", "FILE:1: listen: must be one value, not a list"),
            ("public_url = https://x # here\n", "FILE:1: public_url: write the value in quotes, as \"…\""),
            ("tls_cert = /etc/cert.pem\n", "FILE:1: tls_cert: write the value in quotes, as \"…\""),
            ("listen = \"here\"\n", "FILE:1: listen: give an address and a port, such as 127.0.0.1:8080 or [::1]:8080"),
            ("public_url = \"ftp://x\"\n", "FILE:1: public_url: must be an http or https URL with a host"),
        ] {
            assert_eq!(refusal(text, 0o600), expected, "{text}");
        }
        let broken = refusal("spares = 1\nmaster_key = swordfish\n", 0o600);
        assert!(broken.starts_with("FILE:2: ") && !broken.contains("swordfish"), "{broken}");
        assert!(refusal("spares = 1\nspares = 2\n", 0o600).starts_with("FILE:2: "));
        assert!(refusal(&"#".repeat(2 * 1024 * 1024), 0o600).contains("longer than"));
    }

    #[test]
    fn a_file_with_a_secret_must_be_private() {
        for secret in ["master_key = \"swordfish\"\n", "database_url = \"postgres://u:swordfish@h/d\"\n"] {
            for mode in [0o644, 0o640, 0o602] {
                let refused = refusal(secret, mode);
                assert!(refused.contains("FILE:1: ") && refused.contains("chmod 600"), "{refused}");
                assert!(!refused.contains("swordfish"), "{refused}");
            }
            serve(secret, &[]);
        }
        let open = written("spares = 3\n", 0o644);
        apply(&open.path, all_commands()).expect("no secret");
    }

    /// Returns the example with every option without a default enabled.
    fn whole_example() -> String {
        let text = fs::read_to_string(EXAMPLE).expect("the example");
        let uncommented = |line: &str| match line.strip_prefix("#") {
            Some(rest) if rest.split_once(" = ").is_some_and(|(key, _)| !key.starts_with(' ')) => rest.to_owned(),
            _ => line.to_owned(),
        };
        text.lines().map(uncommented).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn the_example_matches_the_defaults() {
        let text = fs::read_to_string(EXAMPLE).expect("the example");
        assert_eq!(format!("{:?}", serve(&text, &[])), format!("{:?}", serve("", &[])));
    }

    #[test]
    fn the_example_names_every_flag() {
        let text = whole_example();
        let commands = all_commands();
        let flags = commands.find_subcommand("serve").expect("serve").get_arguments();
        let mut missing: Vec<String> = flags.filter_map(key_of).collect();
        let table = DeTable::parse(&text).expect("TOML");
        missing.retain(|key| !table.get_ref().iter().any(|(named, _)| named.get_ref() == key));
        assert!(missing.is_empty(), "docs/examples/casement.toml does not name {missing:?}");
        serve(&text, &[]);
    }
}
