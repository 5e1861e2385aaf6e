//! The settings of the program: flags, variables of the same name, or a file.

mod audit_export;
mod blobs;
mod browsers;
mod cluster;
mod grid;
mod keys;
mod node;
mod serve;
mod values;
mod variables;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use clap_complete::Shell;
use secrecy::SecretString;

pub(crate) use self::audit_export::AuditExportSettings;
pub(crate) use self::blobs::{BlobSettings, BlobsCommand, MoveSettings, local_place};
pub(crate) use self::browsers::machine_memory_mib;
pub(crate) use self::cluster::ClusterSettings;
pub(crate) use self::grid::{GridServer, GridSettings};
pub(crate) use self::keys::KeysCommand;
pub(crate) use self::node::NodeSettings;
pub(crate) use self::serve::{AppSettings, BuildSettings, LimitSettings, LogFormat, ServeSettings, TelemetryUrls};
use crate::{config_file, documents};

/// Real browsers for other programs.
#[derive(Debug, Parser)]
#[command(name = "casement", version, about, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
    /// The configuration file
    ///
    /// It has the settings that are not given as flags or variables. Default: /etc/casement/casement.toml as root, else
    /// $XDG_CONFIG_HOME/casement/casement.toml, if it exists.
    #[arg(long, global = true, value_name = "FILE", env = "CASEMENT_CONFIG")]
    config: Option<PathBuf>,
}

/// The command line of this process.
pub(crate) enum CommandLine {
    /// A command of this program.
    Own(Box<Command>),
    /// A command that drives a server over its API.
    Api(String, ArgMatches),
}

impl CommandLine {
    /// Reads the command line and the settings. Ends the process if the command line is invalid or asks for help.
    ///
    /// # Errors
    /// If the configuration file is invalid.
    pub(crate) fn read() -> anyhow::Result<Self> {
        let words = casement_cli::ordered(std::env::args_os().collect());
        let requested = requested(&words);
        let commands = commands(Some(&requested))?;
        let alone = commands.clone().get_matches_from(&words);
        let name = alone.subcommand_name().unwrap_or_default();
        let needs_none = !reads_configuration(name);
        if !needs_none || casement_cli::has(name) {
            variables::report_unknown(&commands, name == "serve")?;
        }
        let named = alone.try_get_one::<PathBuf>(CONFIG).ok().flatten().cloned();
        if needs_none && alone.value_source(CONFIG) == Some(ValueSource::CommandLine) {
            bail!("`casement {name}` reads no configuration file: leave --config out");
        }
        let matches = match if needs_none { None } else { config_file::find(named) } {
            Some(path) => config_file::apply(&path, commands)?.get_matches_from(&words),
            None => alone,
        };
        Self::from_matches(&matches)
    }

    /// Returns the command of these matches.
    pub(crate) fn from_matches(matches: &ArgMatches) -> anyhow::Result<Self> {
        match matches.subcommand() {
            Some((keys::NAME, keys)) if let Some(command) = KeysCommand::from_matches(keys)? => {
                Ok(Self::Own(Box::new(Command::Keys(command))))
            }
            Some((name, matches)) if casement_cli::has(name) => Ok(Self::Api(name.to_owned(), matches.clone())),
            _ => Ok(Self::Own(Box::new(Arguments::from_arg_matches(matches)?.command))),
        }
    }
}

/// The option for the configuration file.
const CONFIG: &str = "config";

/// The commands that need no configuration; those of a sandbox do not run on the host.
const NEED_NO_CONFIGURATION: [&str; 6] = ["agent", "inside", "network", "openapi", "completion", "man"];

/// Returns all commands. Of those that drive a server, only the one named `only` has its arguments; all have for
/// `None`.
pub(crate) fn commands(only: Option<&str>) -> anyhow::Result<clap::Command> {
    let commands =
        casement_cli::add_to(Arguments::command().after_help(documents::HINT), only, casement_http::openapi())?;
    let commands =
        commands.mut_subcommands(|command| match reads_configuration(command.get_name()) || command.is_hide_set() {
            true => command,
            false => command.arg(unused_config()),
        });
    Ok(match only {
        None | Some(keys::NAME) => commands.mut_subcommand(keys::NAME, keys::with_database),
        Some(_) => commands,
    })
}

fn reads_configuration(command: &str) -> bool {
    command == keys::NAME || !(NEED_NO_CONFIGURATION.contains(&command) || casement_cli::has(command))
}

/// Returns the option for the configuration file as the commands have it that read none: their help does not name it.
fn unused_config() -> Arg {
    Arg::new(CONFIG).long(CONFIG).global(true).hide(true).value_parser(clap::value_parser!(PathBuf))
}

/// Returns the settings of a server that ends what another one has left: it listens nowhere else and starts no browsers.
///
/// # Errors
/// If the configuration file is invalid.
pub(crate) fn serve_settings(stop: StopSettings) -> anyhow::Result<ServeSettings> {
    let StopSettings { store: Store { data_dir, database_url }, end_sessions: _, blobs, grids, master_key } = stop;
    let settings = serve_settings_on(&data_dir.path()?)?;
    Ok(ServeSettings { database_url, blobs, grids, master_key, ..settings })
}

fn serve_settings_on(data_dir: &Path) -> anyhow::Result<ServeSettings> {
    let words = ["casement", "serve", "--listen", "127.0.0.1:0", "--spares", "0", "--no-default-pool", "--data-dir"];
    let words = words.iter().map(OsString::from).chain([data_dir.into()]);
    let matches = configured_serve()?.try_get_matches_from(words)?;
    serve_settings_of(&matches)
}

/// Returns the matches of the flags of `casement serve` with which this process started, with the present content of
/// the configuration file, and the settings that they make.
///
/// # Errors
/// If the configuration file is invalid, or the command is another one.
pub(crate) fn read_serve_again() -> anyhow::Result<(ArgMatches, ServeSettings)> {
    let matches = configured_serve()?.try_get_matches()?;
    let settings = serve_settings_of(&matches)?;
    let serve = matches.subcommand_matches("serve").context("this process runs no server")?;
    Ok((serve.clone(), settings))
}

/// Returns the commands with the values of the configuration file, which the flag of this process or its variable names.
fn configured_serve() -> anyhow::Result<clap::Command> {
    let commands = commands(Some("serve"))?;
    let named = commands.clone().try_get_matches()?.get_one::<PathBuf>("config").cloned();
    match config_file::find(named) {
        Some(path) => config_file::apply(&path, commands),
        None => Ok(commands),
    }
}

fn serve_settings_of(matches: &ArgMatches) -> anyhow::Result<ServeSettings> {
    match Arguments::from_arg_matches(matches)?.command {
        Command::Serve(settings) => Ok(*settings),
        _ => anyhow::bail!("this process runs no server"),
    }
}

/// Returns the name of the command that this process is to run or to explain; empty if there is none.
fn requested(words: &[OsString]) -> String {
    let mut words = words.iter().skip(1);
    while let Some(word) = words.next() {
        match &*word.to_string_lossy() {
            "--config" => _ = words.next(),
            "help" => {}
            word if word.starts_with('-') => {}
            word => return word.to_owned(),
        }
    }
    String::new()
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the server
    Serve(Box<ServeSettings>),
    /// The commands `keys …` on the database of this host
    #[command(skip)]
    Keys(KeysCommand),
    /// Manage the key under which secrets are sealed
    #[command(subcommand)]
    Secrets(SecretsCommand),
    /// Manage the store of files: profiles, extensions, replays, apps
    #[command(subcommand)]
    Blobs(BlobsCommand),
    /// Check whether this host meets Casement's requirements, and print remedies
    Doctor(DoctorSettings),
    /// Stop the server; sessions continue and are adopted by its next start
    Stop(StopSettings),
    /// Drain the server: it takes no new sessions, and those that it has live until they end or the deadline is over
    ///
    /// Idle browsers of pools end, and other nodes replace them. The server goes on running, and takes sessions again
    /// after a restart or `casement nodes resume`. With --wait, the command returns when the server is drained, so that
    /// it can be stopped.
    Drain(DrainSettings),
    /// Back this installation up; sessions continue
    ///
    /// Writes the database, the stored files (profiles, extensions, replays, apps) and the keys to a new folder. The
    /// server may run; without one, the private database is started for the time. The keys are sealed under a
    /// passphrase, without which the backup cannot be restored. Audit records, replays and all else that is not sealed
    /// in the database can be read by whoever has the folder. The configuration file is not part of the backup.
    Backup(BackupSettings),
    /// Restore a backup into a new data directory
    ///
    /// Checks the whole backup first. The data directory must be missing or empty, and so must be the database that
    /// --database-url names. The store that --blob-url names must not have the files of a database. API keys, URLs and sealed values stay valid; the next start of the server ends the
    /// sessions that ran when the backup was made.
    Restore(RestoreSettings),
    /// Print the OpenAPI document
    Openapi {
        /// Print the table of operations instead, as Markdown
        #[arg(long)]
        operations: bool,
        /// Print the page of metrics instead, as Markdown
        #[arg(long, conflicts_with = "operations")]
        metrics: bool,
        /// Print the table of what each kind of engine can do instead, as Markdown
        #[arg(long, conflicts_with_all = ["operations", "metrics"])]
        engines: bool,
    },
    /// Print the completions of commands for a shell
    Completion {
        /// The shell
        shell: Shell,
    },
    /// Print the manual page of the program, or of one of its commands
    #[command(hide = true)]
    Man {
        /// The command
        command: Option<String>,
        /// Write the pages of all commands and of their verbs to this folder
        #[arg(long, value_name = "DIR", conflicts_with = "command")]
        all: Option<PathBuf>,
    },
    /// The first program in a session's sandbox
    #[command(hide = true)]
    Agent {
        /// The configuration file
        #[arg(default_value = casement_agent_protocol::CONFIG_PATH)]
        config: PathBuf,
    },
    /// The first program in the sandbox of a deployed app
    #[command(hide = true)]
    Inside,
    /// Prepares the network of a sandbox
    #[command(hide = true)]
    Network {
        /// What the network has in addition, and the command that creates the sandbox
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<std::ffi::OsString>,
    },
    /// Answers one request about a KeePass database
    #[command(hide = true)]
    Keepass {
        /// The database
        file: PathBuf,
    },
}

#[derive(Debug, Args)]
pub(crate) struct DoctorSettings {
    #[command(flatten)]
    pub(crate) store: Store,
    /// The folder of the script runner [default: beside the program]
    #[arg(long, value_name = "DIR", env = "CASEMENT_SCRIPT_RUNNER")]
    pub(crate) script_runner: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) grids: GridSettings,
}

/// The location of this installation's data.
#[derive(Clone, Debug, Args)]
pub(crate) struct DataDir {
    /// Key, private database, sandboxes [default: /var/lib/casement as root, else $XDG_DATA_HOME/casement]
    #[arg(long = "data-dir", value_name = "DIR", env = "CASEMENT_DATA_DIR")]
    dir: Option<PathBuf>,
}

impl DataDir {
    /// Returns the directory as an absolute path.
    pub(crate) fn path(&self) -> anyhow::Result<PathBuf> {
        let dir = match &self.dir {
            Some(dir) => dir.clone(),
            None if rustix::process::geteuid().is_root() => PathBuf::from("/var/lib/casement"),
            None => {
                let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
                variable("XDG_DATA_HOME")
                    .or_else(|| variable("HOME").map(|home| home.join(".local/share")))
                    .ok_or_else(|| anyhow::anyhow!("neither XDG_DATA_HOME nor HOME is set: give --data-dir"))?
                    .join("casement")
            }
        };
        Ok(std::path::absolute(dir)?)
    }
}

#[derive(Debug, Args)]
pub(crate) struct StopSettings {
    #[command(flatten)]
    pub(crate) store: Store,
    /// End the running sessions and invocations too
    #[arg(long)]
    pub(crate) end_sessions: bool,
    // What follows is needed for the sessions that a server has left.
    #[command(flatten)]
    pub(crate) blobs: BlobSettings,
    #[command(flatten)]
    pub(crate) grids: GridSettings,
    /// The keys as for `casement serve`, under which the profiles of ended sessions are sealed
    #[arg(long, value_name = "KEY", env = "CASEMENT_MASTER_KEY", hide_env_values = true)]
    pub(crate) master_key: Option<SecretString>,
}

#[derive(Debug, Args)]
pub(crate) struct DrainSettings {
    #[command(flatten)]
    pub(crate) data_dir: DataDir,
    /// Return when the last session has ended
    #[arg(long)]
    pub(crate) wait: bool,
    /// Seconds until the remaining sessions are ended [default: --drain-deadline of the server]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(0..=i64::from(casement_domain::node::MAX_DRAIN_SECONDS)))]
    pub(crate) deadline: Option<u32>,
}

#[derive(Debug, Args)]
pub(crate) struct BackupSettings {
    /// The folder to create; it may exist if it is empty
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    #[command(flatten)]
    pub(crate) store: Store,
    #[command(flatten)]
    pub(crate) blobs: BlobSettings,
    /// The file whose first line is the passphrase, at least 12 characters [default: asked for on the terminal, else
    /// the first line of standard input]
    #[arg(long, value_name = "FILE", env = "CASEMENT_PASSPHRASE_FILE")]
    pub(crate) passphrase_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct RestoreSettings {
    /// The folder of the backup
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    #[command(flatten)]
    pub(crate) store: Store,
    #[command(flatten)]
    pub(crate) blobs: BlobSettings,
    /// The file whose first line is the backup's passphrase [default: asked for on the terminal, else the first line
    /// of standard input]
    #[arg(long, value_name = "FILE", env = "CASEMENT_PASSPHRASE_FILE")]
    pub(crate) passphrase_file: Option<PathBuf>,
}

/// The database settings of commands beside the server.
#[derive(Clone, Debug, Args)]
pub(crate) struct Store {
    #[command(flatten)]
    pub(crate) data_dir: DataDir,
    /// The URL of a PostgreSQL server [default: the private one in the data directory]
    #[arg(long, value_name = "URL", env = "CASEMENT_DATABASE_URL", hide_env_values = true)]
    pub(crate) database_url: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SecretsCommand {
    /// Seal everything under a new key; the server may keep running
    Rotate {
        #[command(flatten)]
        store: Store,
        /// The keys as for `casement serve`: no key is created then, and everything is sealed under the first one
        #[arg(long, value_name = "KEY", env = "CASEMENT_MASTER_KEY", hide_env_values = true)]
        master_key: Option<SecretString>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls `check` with the words and the help of each command below `command`.
    fn each_help(command: &mut clap::Command, words: &str, check: &mut dyn FnMut(&str, &str)) {
        check(words, &command.render_long_help().to_string());
        for below in command.get_subcommands_mut().filter(|below| below.get_name() != "help" && !below.is_hide_set()) {
            let words = format!("{words} {}", below.get_name());
            each_help(below, &words, check);
        }
    }

    #[test]
    fn every_help_fits_the_width_of_a_terminal() {
        let mut commands = commands(None).expect("the document is whole");
        commands.build();
        let mut too_long = Vec::new();
        each_help(&mut commands, "casement", &mut |words, help| {
            let lines = help.lines().filter(|line| line.chars().count() > 100 && !line.starts_with("Usage:"));
            too_long.extend(lines.map(|line| format!("{words}: {line}")));
        });
        assert_eq!(too_long, Vec::<String>::new());
    }

    #[test]
    fn commands_that_read_no_configuration_do_not_offer_a_file_of_it() {
        let mut commands = commands(None).expect("the document is whole");
        commands.build();
        each_help(&mut commands, "", &mut |words, help| {
            let command = words.split_whitespace().next().unwrap_or("serve");
            assert_eq!(help.contains("--config <FILE>"), reads_configuration(command), "casement{words}");
        });
    }
}
