//! The settings of engines that are WebDriver servers, for example Selenium Grids.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use casement_domain::engine::EngineName;
use clap::Args;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Map, Value};
use url::Url;

use super::values::plain_url;

/// The name of an engine whose settings name none.
const DEFAULT_NAME: &str = "grid";

/// A value of one engine.
#[derive(Clone, Debug)]
pub(crate) struct OfEngine<T> {
    engine: EngineName,
    value: T,
}

/// The engines beside the one of this program's own sandboxes. NAME is the engine's; without it, the engine is `grid`.
#[derive(Clone, Debug, Args)]
pub(crate) struct GridSettings {
    /// The URL of a WebDriver server, for example of a Selenium Grid, whose browsers sessions and pools can have by
    /// `engine`; NAME is the name of the engine [default: grid]; may be given several times
    #[arg(
        long = "grid-url",
        value_name = "[NAME=]URL",
        env = "CASEMENT_GRID_URL",
        value_delimiter = ',',
        value_parser = of_engine(server_url),
        action = clap::ArgAction::Append
    )]
    grid_urls: Vec<OfEngine<Url>>,
    /// The user and the password for the WebDriver server; may be given several times, for engines of other names
    #[arg(
        long = "grid-credentials",
        value_name = "[NAME=]USER:PASSWORD",
        env = "CASEMENT_GRID_CREDENTIALS",
        hide_env_values = true,
        action = clap::ArgAction::Append
    )]
    grid_credentials: Vec<SecretString>,
    /// Further capabilities of each session that is requested from the WebDriver server, as a JSON object; may be given
    /// several times, for engines of other names
    #[arg(
        long = "grid-capabilities",
        value_name = "[NAME=]JSON",
        env = "CASEMENT_GRID_CAPABILITIES",
        value_parser = of_engine(object),
        action = clap::ArgAction::Append
    )]
    grid_capabilities: Vec<OfEngine<Map<String, Value>>>,
    /// The maximum number of browsers that this node has at the WebDriver server at a time; may be given several times,
    /// for engines of other names [default: no limit]
    #[arg(
        long = "grid-max-sessions",
        value_name = "[NAME=]N",
        env = "CASEMENT_GRID_MAX_SESSIONS",
        value_delimiter = ',',
        value_parser = of_engine(bounded::<1, 100_000>),
        action = clap::ArgAction::Append
    )]
    grid_max_sessions: Vec<OfEngine<u32>>,
    /// The seconds within which the WebDriver server has to start a browser, after the time in its queue; may be given
    /// several times, for engines of other names [default: 60]
    #[arg(
        long = "grid-start-timeout",
        value_name = "[NAME=]SECONDS",
        env = "CASEMENT_GRID_START_TIMEOUT",
        value_delimiter = ',',
        value_parser = of_engine(bounded::<1, 3_600>),
        action = clap::ArgAction::Append
    )]
    grid_start_timeouts: Vec<OfEngine<u32>>,
    /// The seconds for which a start may wait in the queue of the WebDriver server; may be given several times, for engines
    /// of other names [default: as --grid-start-timeout]
    #[arg(
        long = "grid-queue-timeout",
        value_name = "[NAME=]SECONDS",
        env = "CASEMENT_GRID_QUEUE_TIMEOUT",
        value_delimiter = ',',
        value_parser = of_engine(bounded::<1, 3_600>),
        action = clap::ArgAction::Append
    )]
    grid_queue_timeouts: Vec<OfEngine<u32>>,
    /// The seconds after which the WebDriver server ends a session without commands, its own setting; sessions here get
    /// a command in a third of it; may be given several times, for engines of other names [default: 300]
    #[arg(
        long = "grid-session-timeout",
        value_name = "[NAME=]SECONDS",
        env = "CASEMENT_GRID_SESSION_TIMEOUT",
        value_delimiter = ',',
        value_parser = of_engine(bounded::<6, 86_400>),
        action = clap::ArgAction::Append
    )]
    grid_session_timeouts: Vec<OfEngine<u32>>,
    /// The path of a session's CDP socket below the URL of the WebDriver server, with {id} for the id of the session; may
    /// be given several times, for engines of other names [default: /session/{id}/se/cdp]
    #[arg(
        long = "grid-cdp-path",
        value_name = "[NAME=]PATH",
        env = "CASEMENT_GRID_CDP_PATH",
        value_delimiter = ',',
        value_parser = of_engine(cdp_path),
        action = clap::ArgAction::Append
    )]
    grid_cdp_paths: Vec<OfEngine<String>>,
    /// The file with the only trusted certificate authorities of the WebDriver server, in PEM form; may be given several
    /// times, for engines of other names [default: those of this machine]
    #[arg(
        long = "grid-ca",
        value_name = "[NAME=]FILE",
        env = "CASEMENT_GRID_CA",
        value_delimiter = ',',
        value_parser = of_engine(file),
        action = clap::ArgAction::Append
    )]
    grid_cas: Vec<OfEngine<PathBuf>>,
    /// Start no browsers on this machine; all are of WebDriver servers
    #[arg(long, env = "CASEMENT_NO_LOCAL_ENGINE", value_parser = clap::builder::BoolishValueParser::new(), requires = "grid_urls")]
    pub(crate) no_local_engine: bool,
}

/// The settings of one WebDriver server.
#[derive(Clone, Debug)]
pub(crate) struct GridServer {
    pub(crate) name: EngineName,
    pub(crate) url: Url,
    pub(crate) credentials: Option<(String, SecretString)>,
    pub(crate) capabilities: Map<String, Value>,
    pub(crate) max_sessions: Option<u32>,
    pub(crate) start_timeout: Duration,
    pub(crate) queue_timeout: Option<Duration>,
    pub(crate) session_timeout: Duration,
    pub(crate) cdp_path: Option<String>,
    pub(crate) ca: Option<PathBuf>,
}

impl GridSettings {
    /// Returns the servers, in the order of their URLs.
    ///
    /// # Errors
    /// If an engine has two URLs or two values of a setting, or a setting is of an engine without a URL. An error names the
    /// setting, and no secret.
    pub(crate) fn servers(&self) -> anyhow::Result<Vec<GridServer>> {
        let mut names = BTreeSet::new();
        for OfEngine { engine, .. } in &self.grid_urls {
            ensure!(!engine.is_local(), "--grid-url: the name {engine} is that of the engine of this machine");
            ensure!(names.insert(engine.clone()), "--grid-url: there are two URLs of the engine {engine}");
        }
        let mut credentials = of_each("--grid-credentials", &self.credentials()?, &names)?;
        let mut capabilities = of_each("--grid-capabilities", &self.grid_capabilities, &names)?;
        let mut max_sessions = of_each("--grid-max-sessions", &self.grid_max_sessions, &names)?;
        let mut start_timeouts = of_each("--grid-start-timeout", &self.grid_start_timeouts, &names)?;
        let mut queue_timeouts = of_each("--grid-queue-timeout", &self.grid_queue_timeouts, &names)?;
        let mut session_timeouts = of_each("--grid-session-timeout", &self.grid_session_timeouts, &names)?;
        let mut cdp_paths = of_each("--grid-cdp-path", &self.grid_cdp_paths, &names)?;
        let mut cas = of_each("--grid-ca", &self.grid_cas, &names)?;
        let seconds = |of: Option<u32>, default: u32| Duration::from_secs(of.unwrap_or(default).into());
        let server = |OfEngine { engine: name, value: url }: &OfEngine<Url>| GridServer {
            name: name.clone(),
            url: url.clone(),
            credentials: credentials.remove(name),
            capabilities: capabilities.remove(name).unwrap_or_default(),
            max_sessions: max_sessions.remove(name),
            start_timeout: seconds(start_timeouts.remove(name), 60),
            queue_timeout: queue_timeouts.remove(name).map(|seconds| Duration::from_secs(seconds.into())),
            session_timeout: seconds(session_timeouts.remove(name), 300),
            cdp_path: cdp_paths.remove(name),
            ca: cas.remove(name),
        };
        Ok(self.grid_urls.iter().map(server).collect())
    }

    fn credentials(&self) -> anyhow::Result<Vec<OfEngine<(String, SecretString)>>> {
        let parse = |text: &SecretString| {
            let (engine, rest) = split(text.expose_secret()).context("--grid-credentials: the name is not possible")?;
            let (user, password) = rest.split_once(':').context("--grid-credentials: must be [NAME=]USER:PASSWORD")?;
            Ok(OfEngine { engine, value: (user.to_owned(), SecretString::from(password)) })
        };
        self.grid_credentials.iter().map(parse).collect()
    }
}

/// Returns the values of a setting by engine.
fn of_each<T: Clone>(
    flag: &str,
    values: &[OfEngine<T>],
    names: &BTreeSet<EngineName>,
) -> anyhow::Result<BTreeMap<EngineName, T>> {
    let mut by_name = BTreeMap::new();
    for OfEngine { engine, value } in values {
        ensure!(names.contains(engine), "{flag}: there is no --grid-url of the engine {engine}");
        if by_name.insert(engine.clone(), value.clone()).is_some() {
            bail!("{flag}: there are two values of the engine {engine}");
        }
    }
    Ok(by_name)
}

/// Splits a value from the name of its engine. What stands before the first `=` is a name only if it has the form of one.
fn split(text: &str) -> anyhow::Result<(EngineName, &str)> {
    let named = text.split_once('=').and_then(|(name, rest)| Some((EngineName::parse(name).ok()?, rest)));
    match named {
        Some(named) => Ok(named),
        None => Ok((EngineName::parse(DEFAULT_NAME).map_err(|bad| anyhow::anyhow!(bad.message))?, text)),
    }
}

/// Returns the parser of a value that may name its engine.
fn of_engine<T: Clone + Send + Sync + 'static>(
    parse: fn(&str) -> Result<T, String>,
) -> impl Fn(&str) -> Result<OfEngine<T>, String> + Clone + Send + Sync + 'static {
    move |text| {
        let (engine, rest) = split(text).map_err(|bad| bad.to_string())?;
        Ok(OfEngine { engine, value: parse(rest)? })
    }
}

fn server_url(text: &str) -> Result<Url, String> {
    let url = plain_url(text)?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err("must be without a user and a password: give them by --grid-credentials".into());
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("must be without a query and a fragment".into());
    }
    Ok(url)
}

fn object(text: &str) -> Result<Map<String, Value>, String> {
    serde_json::from_str(text).map_err(|_| "must be a JSON object".to_owned())
}

fn bounded<const MIN: u32, const MAX: u32>(text: &str) -> Result<u32, String> {
    u32::from_str(text)
        .ok()
        .filter(|number| (MIN..=MAX).contains(number))
        .ok_or_else(|| format!("must be a number from {MIN} to {MAX}"))
}

fn cdp_path(text: &str) -> Result<String, String> {
    let is_path = text.starts_with('/') && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#');
    if is_path && text.matches("{id}").count() == 1 {
        Ok(text.to_owned())
    } else {
        Err("must be a path that has {id} once, such as /devtools/{id}/browser".to_owned())
    }
}

fn file(text: &str) -> Result<PathBuf, String> {
    if text.is_empty() { Err("must name a file".to_owned()) } else { Ok(text.into()) }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Arguments {
        #[command(flatten)]
        grid: GridSettings,
    }

    fn servers(flags: &[&str]) -> anyhow::Result<Vec<GridServer>> {
        let words = ["casement"].into_iter().chain(flags.iter().copied());
        Arguments::try_parse_from(words)?.grid.servers()
    }

    #[test]
    fn an_engine_without_a_name_is_called_grid() -> anyhow::Result<()> {
        let all = servers(&["--grid-url", "http://grid.example:4444", "--grid-credentials", "user:pass=word:1"])?;
        let [grid] = &all[..] else { bail!("{all:?}") };
        assert_eq!((grid.name.as_str(), grid.url.as_str()), ("grid", "http://grid.example:4444/"));
        let (user, password) = grid.credentials.as_ref().context("credentials")?;
        assert_eq!((user.as_str(), password.expose_secret()), ("user", "pass=word:1"));
        assert_eq!((grid.start_timeout.as_secs(), grid.session_timeout.as_secs()), (60, 300));
        Ok(())
    }

    #[test]
    fn each_setting_belongs_to_the_engine_that_it_names() -> anyhow::Result<()> {
        let all = servers(&[
            "--grid-url",
            "eu=https://eu.example/wd/hub,us=https://us.example",
            "--grid-max-sessions",
            "us=7",
            "--grid-capabilities",
            r#"eu={"platformName":"linux"}"#,
            "--grid-credentials",
            "us=root:secret",
            "--grid-cdp-path",
            "eu=/devtools/{id}/browser",
        ])?;
        let [eu, us] = &all[..] else { bail!("{all:?}") };
        assert_eq!((eu.max_sessions, us.max_sessions), (None, Some(7)));
        assert_eq!(eu.capabilities["platformName"], "linux");
        assert!(us.capabilities.is_empty() && eu.credentials.is_none() && us.credentials.is_some());
        assert_eq!(eu.cdp_path.as_deref(), Some("/devtools/{id}/browser"));
        Ok(())
    }

    #[test]
    fn settings_that_belong_to_no_engine_or_are_invalid_are_refused_without_a_secret() {
        for (flags, what) in [
            (&["--grid-max-sessions", "7"][..], "no --grid-url of the engine grid"),
            (&["--grid-url", "http://a", "--grid-max-sessions", "other=7"], "no --grid-url of the engine other"),
            (&["--grid-url", "http://a", "--grid-url", "http://b"], "two URLs of the engine grid"),
            (&["--grid-url", "local=http://a"], "the engine of this machine"),
            (&["--grid-url", "http://u:secret@a"], "--grid-credentials"),
            (&["--grid-url", "ftp://a"], "http or https"),
            (&["--grid-url", "http://a", "--grid-credentials", "secret"], "must be [NAME=]USER:PASSWORD"),
            (&["--grid-url", "http://a", "--grid-capabilities", "[]"], "JSON object"),
            (&["--grid-url", "http://a", "--grid-max-sessions", "0"], "from 1 to 100000"),
            (&["--grid-url", "http://a", "--grid-cdp-path", "/x"], "{id}"),
            (&["--no-local-engine"], "--grid-url"),
        ] {
            let error = format!("{:#}", servers(flags).expect_err(what));
            assert!(error.contains(what), "{error}");
            assert!(!error.contains("secret") || flags.contains(&"http://u:secret@a"), "{error}");
        }
    }
}
